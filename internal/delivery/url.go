package delivery

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"strings"
)

// MaxURL is the longest URL of a subscription in bytes.
const MaxURL = 8 << 10

// Errors of CheckURL. None holds any part of the URL, which may be a credential.
var (
	ErrURLLength   = errors.New("url: longer than 8192 bytes")
	ErrURLChars    = errors.New("url: only visible ASCII is allowed; percent-encode the rest, and write the host as xn--")
	ErrURLScheme   = errors.New("url: must begin with http:// or https://")
	ErrURLUserinfo = errors.New("url: must not hold a user or password")
	ErrURLHost     = errors.New("url: host must be a name, an IPv4 address as four decimal numbers, or an IPv6 address in brackets")
	ErrURLPort     = errors.New("url: port must be 1 to 65535")
)

// CheckURL reports whether raw may be registered with a strict Guard.
func CheckURL(raw string) error { return new(Guard).CheckURL(raw) }

// CheckURL returns nil for a URL that may be registered: http or https, no
// userinfo, a host that is a name or a plainly written address, at most MaxURL
// bytes. An address literal must pass the guard; a name is judged when it is
// dialled. A fragment is accepted and never sent.
func (g *Guard) CheckURL(raw string) error {
	t, err := parseTarget(raw)
	if err != nil {
		return err
	}
	if a, err := netip.ParseAddr(t.host); err == nil && !g.Allowed(a) {
		return ErrRefused
	}
	return nil
}

// HostKey returns scheme://host:port of raw, in lower case and with the port
// always written, or "" if raw is not a URL that CheckURL takes.
func HostKey(raw string) string {
	t, err := parseTarget(raw)
	if err != nil {
		return ""
	}
	return t.String()
}

// endpoint is what a connection belongs to.
type endpoint struct {
	tls        bool
	host, port string // lower case, without brackets

	// cert is shown to the endpoint where it asks; nil: the platform's. A connection carries one
	// identity: it is pooled for that alone.
	cert *tls.Certificate
}

func (e endpoint) address() string {
	if strings.Contains(e.host, ":") {
		return "[" + e.host + "]:" + e.port
	}
	return e.host + ":" + e.port
}

func (e endpoint) String() string {
	if e.tls {
		return "https://" + e.address()
	}
	return "http://" + e.address()
}

// target is a URL taken apart, no octet changed.
type target struct {
	endpoint
	authority string // Host header: as configured
	uri       string // request target: path and query as configured, "/" if there is no path
}

// parseTarget is the one parser of URLs: registration, guard and request see
// the same string. It does not normalise and does not decode.
func parseTarget(raw string) (target, error) {
	var t target
	if len(raw) > MaxURL {
		return t, ErrURLLength
	}
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] >= 0x7f {
			return t, ErrURLChars
		}
	}
	var rest string
	switch {
	case hasPrefixFold(raw, "https://"):
		t.tls, rest = true, raw[len("https://"):]
	case hasPrefixFold(raw, "http://"):
		rest = raw[len("http://"):]
	default:
		return t, ErrURLScheme
	}
	if i := strings.IndexByte(rest, '#'); i >= 0 {
		rest = rest[:i]
	}
	cut := strings.IndexAny(rest, "/?")
	if cut < 0 {
		cut = len(rest)
	}
	t.authority, t.uri = rest[:cut], rest[cut:]
	if !strings.HasPrefix(t.uri, "/") {
		t.uri = "/" + t.uri
	}
	return t, t.splitAuthority()
}

func (t *target) splitAuthority() error {
	if strings.Contains(t.authority, "@") {
		return ErrURLUserinfo
	}
	var port string
	var explicit bool
	host := t.authority
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return ErrURLHost
		}
		rest := host[end+1:]
		host = host[1:end]
		if a, err := netip.ParseAddr(host); err != nil || !a.Is6() || a.Zone() != "" {
			return ErrURLHost
		}
		if port, explicit = strings.CutPrefix(rest, ":"); !explicit && rest != "" {
			return ErrURLHost
		}
	} else {
		host, port, explicit = strings.Cut(host, ":")
		if !validHost(host) {
			return ErrURLHost
		}
	}
	if explicit && !validPort(port) {
		return ErrURLPort
	}
	if !explicit {
		port = defaultPort(t.tls)
	}
	t.host, t.port = strings.ToLower(host), port
	return nil
}

func defaultPort(tls bool) string {
	if tls {
		return "443"
	}
	return "80"
}

func validPort(s string) bool {
	if s == "" || len(s) > 5 || s[0] == '0' {
		return false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n <= 65535
}

// validHost takes names of letters, digits, "-" and "_", and dotted quads. A
// host whose last label is a number in any spelling (2130706433, 0x7f.1,
// 0177.0.0.1, 127.1) is an address to some resolvers and must be a dotted quad
// (the "ends in a number" rule of the WHATWG URL standard).
func validHost(h string) bool {
	name := strings.TrimSuffix(h, ".")
	if name == "" || len(name) > 253 {
		return false
	}
	last := name
	for label := range strings.SplitSeq(name, ".") {
		if !validLabel(label) {
			return false
		}
		last = label
	}
	if numeric(last) {
		a, err := netip.ParseAddr(h)
		return err == nil && a.Is4()
	}
	return true
}

func validLabel(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for i := range len(s) {
		switch c := s[i] | 0x20; {
		case 'a' <= c && c <= 'z', '0' <= s[i] && s[i] <= '9', s[i] == '-', s[i] == '_':
		default:
			return false
		}
	}
	return true
}

// numeric reports whether a label is digits, or "0x" with hexadecimal digits or nothing.
func numeric(s string) bool {
	digits := "0123456789"
	if hasPrefixFold(s, "0x") {
		s, digits = s[2:], "0123456789abcdefABCDEF"
	}
	return strings.Trim(s, digits) == ""
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
