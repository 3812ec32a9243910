package delivery

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestURLsThatMayBeRegistered(t *testing.T) {
	for _, raw := range []string{
		"https://h.test", "http://h.test/", "HTTPS://H.TEST/X", "https://h.test:8443/a?b#c", "https://h.test.",
		"https://a_b.h-1.test/%2F", "https://8.8.8.8/", "https://[2606:4700::1111]:444/x", "https://xn--bcher-kva.test/",
		"https://h.test/services/T0/B0/x?a=@:/?#", "https://1.h2.test/", "https://0x.test/",
		"https://h.test/" + strings.Repeat("a", MaxURL-len("https://h.test/")),
	} {
		if err := CheckURL(raw); err != nil {
			t.Errorf("%.60q: %v", raw, err)
		}
	}
}

// Field case 60.
// Field case 76.
func TestURLsThatAreRefusedAtRegistration(t *testing.T) {
	for raw, want := range map[string]error{
		"":                           ErrURLScheme,
		"h.test/x":                   ErrURLScheme,
		"ftp://h.test/":              ErrURLScheme,
		"file:///etc/passwd":         ErrURLScheme,
		"https:/h.test":              ErrURLScheme,
		"https:h.test":               ErrURLScheme,
		"//h.test/":                  ErrURLScheme,
		"https://":                   ErrURLHost,
		"https:///path":              ErrURLHost,
		"https://?x":                 ErrURLHost,
		"https://:443/":              ErrURLHost,
		"https://user:pw@h.test/":    ErrURLUserinfo,
		"https://user@h.test/":       ErrURLUserinfo,
		"https://@h.test/":           ErrURLUserinfo,
		"https://h.test:pw@10.0.0.1": ErrURLUserinfo,
		"https://h.test\\@10.0.0.1/": ErrURLUserinfo,
		"https://h.test\\x/":         ErrURLHost,
		"https://h%2etest/":          ErrURLHost,
		"https://h..test/":           ErrURLHost,
		"https://.h.test/":           ErrURLHost,
		"https://h.test../":          ErrURLHost,
		"https://" + strings.Repeat("a", 64) + ".test/":       ErrURLHost,
		"https://" + strings.Repeat("abcdefg.", 32) + "test/": ErrURLHost,
		"https://h.test/" + strings.Repeat("a", MaxURL):       ErrURLLength,
		"https://h.test/a b":                                  ErrURLChars,
		"https://h.test/a\r\nX-Evil:":                         ErrURLChars,
		"https://h.test/\x00":                                 ErrURLChars,
		"https://h.test/\x7f":                                 ErrURLChars,
		" https://h.test/":                                    ErrURLChars,
		"https://b\u00fccher.test/":                           ErrURLChars,
		"https://h.test/\u00e4":                               ErrURLChars,
		"https://h.test:/":                                    ErrURLPort,
		"https://h.test:0/":                                   ErrURLPort,
		"https://h.test:080/":                                 ErrURLPort,
		"https://h.test:65536/":                               ErrURLPort,
		"https://h.test:99999999999/":                         ErrURLPort,
		"https://h.test:x/":                                   ErrURLPort,
		"https://h.test:80:80/":                               ErrURLPort,
		"https://[::1/":                                       ErrURLHost,
		"https://[::1]x/":                                     ErrURLHost,
		"https://[fe80::1%25eth0]/":                           ErrURLHost,
		"https://[127.0.0.1]/":                                ErrURLHost,
		"https://::1/":                                        ErrURLHost,
		"http://2130706433/":                                  ErrURLHost,
		"http://0x7f.1/":                                      ErrURLHost,
		"http://0x7f000001/":                                  ErrURLHost,
		"http://0X7F.0x0.0.0x1/":                              ErrURLHost,
		"http://0177.0.0.1/":                                  ErrURLHost,
		"http://127.1/":                                       ErrURLHost,
		"http://127.0.1/":                                     ErrURLHost,
		"http://127.0.0.1./":                                  ErrURLHost,
		"http://h.test.1/":                                    ErrURLHost,
		"http://h.0x/":                                        ErrURLHost,
		"http://256.1.1.1/":                                   ErrURLHost,
		"http://1.2.3.4.5/":                                   ErrURLHost,
		"http://127.0.0.1/":                                   ErrRefused,
		"http://127.0.0.1:8080/":                              ErrRefused,
		"http://0.0.0.0/":                                     ErrRefused,
		"http://169.254.169.254/":                             ErrRefused,
		"http://[::1]/":                                       ErrRefused,
		"http://[::]/":                                        ErrRefused,
		"http://[::ffff:127.0.0.1]/":                          ErrRefused,
		"http://[::ffff:7f00:1]/":                             ErrRefused,
		"http://[64:ff9b::7f00:1]/":                           ErrRefused,
	} {
		if err := CheckURL(raw); !errors.Is(err, want) {
			t.Errorf("%.60q: %v, want %v", raw, err, want)
		}
	}
	open := Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	if err := open.CheckURL("http://127.0.0.1:8080/"); err != nil {
		t.Errorf("an allowed literal: %v", err)
	}
}

func TestHostKeyJoinsSpellingsOfOneHost(t *testing.T) {
	for raw, want := range map[string]string{
		"https://h.test":               "https://h.test:443",
		"HTTPS://H.Test:443/secret?q":  "https://h.test:443",
		"http://h.test/":               "http://h.test:80",
		"https://[2606:4700::A]/x":     "https://[2606:4700::a]:443",
		"http://127.0.0.1:8080/x":      "http://127.0.0.1:8080",
		"https://user:secret@h.test/x": "",
		"nonsense":                     "",
	} {
		if got := HostKey(raw); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
}

// What this parser takes, net/url must read as the same host: two readings of
// one URL are how guards are passed.
func sameHost(t interface{ Fatalf(string, ...any) }, raw string) {
	got, err := parseTarget(raw)
	if err != nil {
		return
	}
	u, err := url.Parse(raw)
	if err != nil {
		return // net/url is stricter about escapes in the path
	}
	if u.User != nil || !strings.EqualFold(u.Hostname(), got.host) {
		t.Fatalf("%q: host %q, by net/url %q", raw, got.host, u.Hostname())
	}
	if u.Port() != "" && u.Port() != got.port {
		t.Fatalf("%q: port %q, by net/url %q", raw, got.port, u.Port())
	}
	if got.uri[0] != '/' || strings.ContainsAny(got.uri, "# \r\n") {
		t.Fatalf("%q: target %q", raw, got.uri)
	}
}

func TestURLIsReadAsNetURLReadsIt(t *testing.T) {
	part := rapid.SampledFrom([]string{"h.test", "127.0.0.1", "[::1]", ":", "80", "/", "?", "#", "@", "\\", "%2F", "a", ".", "..", "//", "[", "]", "0x7f"})
	rapid.Check(t, func(t *rapid.T) {
		scheme := rapid.SampledFrom([]string{"http://", "https://", "HTTP://", "http:", "//"}).Draw(t, "scheme")
		sameHost(t, scheme+strings.Join(rapid.SliceOfN(part, 0, 8).Draw(t, "parts"), ""))
	})
}

func FuzzParseTarget(f *testing.F) {
	f.Add("https://h.test:443/a%2Fb?x#y")
	f.Add("http://[::ffff:127.0.0.1]:80")
	f.Add("http://a\\@b/")
	f.Fuzz(func(t *testing.T, raw string) { sameHost(t, raw) })
}
