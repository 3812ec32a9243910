package admit

import (
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of the operator's own proxies, whose word on where a
// request comes from is taken.
type Proxies struct {
	Trusted []netip.Prefix
	NAT64   []netip.Prefix // /96 networks whose last 32 bits are an IPv4 address
}

// maxHops is how many entries of X-Forwarded-For are looked at, from the right.
const maxHops = 32

// Client returns the client's address: the peer, unless that is a trusted proxy;
// then the rightmost entry of X-Forwarded-For that is none. forwarded are all
// lines of that header, in order; an address with a port is one. An entry that
// is no address makes the hop before it the client, since nothing to its left
// can be believed. If every hop is trusted, it is the leftmost.
//
// Other headers (X-Real-IP, Forwarded, those of a vendor) are never looked at:
// any client can send them.
func (p *Proxies) Client(peer netip.Addr, forwarded []string) netip.Addr {
	client := p.plain(peer)
	if !p.trusts(client) {
		return client
	}
	hops := 0
	for _, line := range slices.Backward(forwarded) {
		for line != "" {
			if hops++; hops > maxHops {
				return client
			}
			i := strings.LastIndexByte(line, ',')
			hop, ok := parseHop(line[i+1:])
			if !ok {
				return client
			}
			client = p.plain(hop)
			if !p.trusts(client) {
				return client
			}
			line = line[:max(i, 0)]
		}
	}
	return client
}

func parseHop(s string) (netip.Addr, bool) {
	s = strings.TrimSpace(s)
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		return a, true
	}
	ap, err := netip.ParseAddrPort(s)
	return ap.Addr(), err == nil
}

// plain unmaps what is an IPv4 address in another form and drops the zone.
func (p *Proxies) plain(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	for _, n := range p.NAT64 {
		if n.Contains(a) && n.Bits() == 96 {
			b := a.As16()
			return netip.AddrFrom4([4]byte(b[12:]))
		}
	}
	return a
}

func (p *Proxies) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(p.Trusted, func(n netip.Prefix) bool { return n.Contains(a) })
}

// Network returns the network of a client's address as a key's part: the first
// v4 or v6 bits. An IPv4 address in IPv6 form is unmapped first: masked as it
// stands, all of them would be one. What is no address is "unknown", one network.
func Network(a netip.Addr, v4, v6 int) string {
	a = a.Unmap().WithZone("")
	bits := v6
	if a.Is4() {
		bits = v4
	}
	n, err := a.Prefix(bits)
	if err != nil || !a.IsValid() {
		return "unknown"
	}
	return n.String()
}

// Trusts reports whether a peer is one of the operator's proxies.
func (p *Proxies) Trusts(peer netip.Addr) bool { return p.trusts(p.plain(peer)) }
