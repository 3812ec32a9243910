package delivery

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// Field case 60.
func TestGuardRefusesEverySpellingOfWhatIsInside(t *testing.T) {
	var g Guard
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.5", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.255",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.9", "192.0.2.1", "192.88.99.1",
		"192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
		"239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::2", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1",
		"::ffff:0:127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::7f00:1",
		"64:ff9b:1::808:808", "100::1", "100:0:0:1::1", "2001::1", "2001:0:808:808::1", "2001:1::1", "2001:2::1",
		"2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:a00:1::1",
		"2002:c0a8:101::", "3fff::1", "3fff:fff::1", "5f00::1", "4000::1", "fc00::1", "fdff::1", "fe80::1",
		"fe80::1%eth0", "2606:4700::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
	} {
		if g.Allowed(netip.MustParseAddr(a)) {
			t.Errorf("%s allowed", a)
		}
	}
	if g.Allowed(netip.Addr{}) {
		t.Error("the zero address allowed")
	}
}

// Field case 60.
func TestGuardLetsPublicAddressesPass(t *testing.T) {
	var g Guard
	for _, a := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0",
		"198.17.255.255", "198.20.0.0", "223.255.255.255",
		"2606:4700::1111", "2001:200::1", "2001:4860:4860::8888", "2a00::1", "::ffff:8.8.8.8",
		"64:ff9b::808:808", "2002:808:808::1",
	} {
		if !g.Allowed(netip.MustParseAddr(a)) {
			t.Errorf("%s refused", a)
		}
	}
}

func TestAllowOpensOnlyWhatItNames(t *testing.T) {
	g := Guard{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}}
	for a, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "fd00:1::5": true,
		"10.2.0.1": false, "127.0.0.1": false, "fd00:2::5": false,
		"64:ff9b::a01:203": false, // NAT64 of 10.1.2.3: another way in
		"2002:a01:203::":   false, // 6to4 of it
	} {
		if g.Allowed(netip.MustParseAddr(a)) != want {
			t.Errorf("%s: allowed is %v", a, !want)
		}
	}
}

// Field case 60. The examples of RFC 6052 2.4, with the public 8.8.8.8 and with what is inside, in each length of prefix.
func TestANetworksOwnNAT64IsJudgedByTheIPv4AddressInIt(t *testing.T) {
	for _, row := range []struct{ prefix, rfc, public, inside, local string }{
		{"2001:db8::/32", "2001:db8:c000:221::", "2001:db8:808:808::", "2001:db8:a9fe:a9fe::", "2001:db8:7f00:1::"},
		{"2001:db8:100::/40", "2001:db8:1c0:2:21::", "2001:db8:108:808:8::", "2001:db8:1a9:fea9:fe::", "2001:db8:17f:0:1::"},
		{"2001:db8:122::/48", "2001:db8:122:c000:2:2100::", "2001:db8:122:808:8:800::", "2001:db8:122:a9fe:a9:fe00::", "2001:db8:122:7f00:0:100::"},
		{"2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::", "2001:db8:122:308:8:808::", "2001:db8:122:3a9:fe:a9fe::", "2001:db8:122:37f::1:0:0"},
		{"2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::", "2001:db8:122:344:8:808:800::", "2001:db8:122:344:a9:fea9:fe00::", "2001:db8:122:344:7f:0:100::"},
		{"2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33", "2001:db8:122:344::8.8.8.8", "2001:db8:122:344::169.254.169.254", "2001:db8:122:344::127.0.0.1"},
	} {
		p := netip.MustParsePrefix(row.prefix)
		if got := embedded(netip.MustParseAddr(row.rfc), p.Bits()); got != netip.MustParseAddr("192.0.2.33") {
			t.Errorf("%s holds %s", row.rfc, got)
		}
		own := Guard{NAT64: []netip.Prefix{p}, Allow: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("127.0.0.0/8")}}
		for a, want := range map[string]bool{row.public: true, row.inside: false, row.local: false, row.rfc: false} {
			if own.Allowed(netip.MustParseAddr(a)) != want {
				t.Errorf("%s in %s: allowed is %v", a, row.prefix, !want)
			}
		}
		if own.NAT64 = append(own.NAT64, netip.MustParsePrefix("2001:db8::/32")); row.prefix != "2001:db8::/32" && own.Allowed(netip.MustParseAddr(row.inside)) {
			t.Errorf("%s: another prefix opens it", row.inside)
		}
	}
	provider := Guard{NAT64: []netip.Prefix{netip.MustParsePrefix("2a00:64::/96")}}
	if provider.Allowed(netip.MustParseAddr("2a00:64::a00:1")) || !new(Guard).Allowed(netip.MustParseAddr("2a00:64::a00:1")) {
		t.Error("only the setting tells that 2a00:64::a00:1 is 10.0.0.1")
	}
}

func TestEmbeddedAddressIsJudgedAsTheOneItLeadsTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v4 := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4"))
		want := new(Guard).Allowed(netip.AddrFrom4(v4))
		mapped := [16]byte{10: 0xff, 11: 0xff}
		copy(mapped[12:], v4[:])
		nat := [16]byte{0x00, 0x64, 0xff, 0x9b}
		copy(nat[12:], v4[:])
		six := [16]byte{0x20, 0x02}
		copy(six[2:], v4[:])
		for _, a := range [][16]byte{mapped, nat, six} {
			if got := new(Guard).Allowed(netip.AddrFrom16(a)); got != want {
				t.Fatalf("%s is %v, %s is %v", netip.AddrFrom16(a), got, netip.AddrFrom4(v4), want)
			}
		}
	})
}

func TestControlJudgesTheAddressOfTheConnection(t *testing.T) {
	var g Guard
	for addr, want := range map[string]error{
		"8.8.8.8:443": nil, "[2606:4700::1]:80": nil,
		"127.0.0.1:80": ErrRefused, "[::1]:80": ErrRefused, "8.8.8.8:0": ErrRefused,
		"localhost:80": ErrRefused, "": ErrRefused, "8.8.8.8": ErrRefused,
	} {
		if got := g.control(t.Context(), "tcp", addr, nil); got != want {
			t.Errorf("%q: %v, want %v", addr, got, want)
		}
	}
}

// What is dialled goes by the setting too, before and after a change of what is allowed.
func TestTheClientKnowsTheNAT64OfItsOptions(t *testing.T) {
	c := New(Options{NAT64: []netip.Prefix{netip.MustParsePrefix("2a00:64::/96")}})
	t.Cleanup(c.Close)
	for _, allow := range [][]netip.Prefix{nil, loopback} {
		c.Allow(allow)
		for addr, want := range map[string]error{"[2a00:64::a00:1]:80": ErrRefused, "[2a00:64::808:808]:80": nil} {
			if got := c.dials.net.ControlContext(t.Context(), "tcp", addr, nil); got != want {
				t.Errorf("%s with %v: %v, want %v", addr, allow, got, want)
			}
		}
	}
}
