package delivery

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"syscall"
)

// ErrRefused is the guard's only answer. It is the same for every address, so
// that it tells nothing about what is inside.
var ErrRefused = errors.New("address not allowed")

// Guard decides which addresses may be dialled. It is asked with the address
// that is about to be connected to, once for each connection, so a name that
// resolves differently the next time gains nothing.
//
// Public unicast addresses pass; everything that the IANA special-purpose
// registries (RFC 6890) set aside does not, nor do addresses outside 2000::/3.
// An IPv4 address inside an IPv6 one (mapped, NAT64, 6to4) is judged as the
// IPv4 address it leads to. Of a name with public and other addresses only the
// public ones are dialled.
//
// The zero Guard is strict and ready to use. Safe for concurrent use.
type Guard struct {
	// Allow opens prefixes that are otherwise refused, as 127.0.0.0/8. It is
	// matched with the address that is dialled; what is embedded in it is not.
	Allow []netip.Prefix

	// NAT64 are the network's own translation prefixes, of the lengths of RFC 6052
	// 2.2 (32, 40, 48, 56, 64, 96). An address in one is judged by the IPv4 address
	// in it alone, as in 64:ff9b::/96; Allow does not open it.
	NAT64 []netip.Prefix
}

// Allowed reports whether a may be dialled.
func (g *Guard) Allowed(a netip.Addr) bool {
	plain := a.Unmap()
	if within(plain, g.NAT64) {
		return g.translated(plain)
	}
	return within(plain, g.Allow) || public(plain)
}

// translated reports whether an address of NAT64 leads to a public one, by every
// prefix that it is in.
func (g *Guard) translated(a netip.Addr) bool {
	for _, p := range g.NAT64 {
		if p.Contains(a) && !public(embedded(a, p.Bits())) {
			return false
		}
	}
	return true
}

// embedded is the IPv4 address behind a NAT64 prefix: RFC 6052 2.2 leaves out the
// ninth byte.
func embedded(a netip.Addr, bits int) netip.Addr {
	b := a.As16()
	rest := b[bits/8:]
	if bits <= 64 {
		rest = slices.Delete(rest, 8-bits/8, 9-bits/8)
	}
	return netip.AddrFrom4([4]byte(rest))
}

// control is a net.Dialer's ControlContext: it runs after resolution, before
// connect, with the address of this connection.
func (g *Guard) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || ap.Port() == 0 || !g.Allowed(ap.Addr()) {
		return ErrRefused
	}
	if tried, ok := ctx.Value(triedKey{}).(*tried); ok {
		tried.allowed.Store(true)
	}
	return nil
}

func public(a netip.Addr) bool {
	switch {
	case !a.IsValid():
		return false
	case a.Is4():
		return !within(a, special4)
	case within(a, nat64):
		return public(embedded(a, 96))
	case within(a, sixToFour):
		b := a.As16()
		return public(netip.AddrFrom4([4]byte(b[2:6])))
	}
	return within(a, unicast6) && !within(a, special6)
}

func within(a netip.Addr, set []netip.Prefix) bool {
	for _, p := range set {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// The registries' entries that are not globally reachable, multicast beside
// them. Blocks that hold a few reachable anycast addresses of infrastructure
// (192.0.0.0/24, 2001::/23) are refused whole.
var (
	special4 = prefixes(
		"0.0.0.0/8",       // this network
		"10.0.0.0/8",      // private
		"100.64.0.0/10",   // shared, carrier-grade NAT
		"127.0.0.0/8",     // loopback
		"169.254.0.0/16",  // link-local
		"172.16.0.0/12",   // private
		"192.0.0.0/24",    // protocol assignments
		"192.0.2.0/24",    // documentation
		"192.88.99.0/24",  // 6to4 relay, deprecated
		"192.168.0.0/16",  // private
		"198.18.0.0/15",   // benchmarking
		"198.51.100.0/24", // documentation
		"203.0.113.0/24",  // documentation
		"224.0.0.0/4",     // multicast
		"240.0.0.0/4",     // reserved, limited broadcast
	)
	unicast6 = prefixes("2000::/3") // leaves out ::/96, ULA, link-local, site-local, discard, SRv6, multicast
	special6 = prefixes(
		"2001::/23",     // protocol assignments: Teredo, benchmarking, ORCHID
		"2001:db8::/32", // documentation
		"3fff::/20",     // documentation
	)
	nat64     = prefixes("64:ff9b::/96") // RFC 6052; 64:ff9b:1::/48 is local and outside 2000::/3
	sixToFour = prefixes("2002::/16")    // RFC 3056
)

func prefixes(texts ...string) []netip.Prefix {
	set := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		set[i] = netip.MustParsePrefix(t)
	}
	return set
}
