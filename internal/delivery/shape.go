package delivery

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/internal/envelope"
)

// Spec is all in which the requests of one subscription differ from others'.
type Spec struct {
	Signature Signature
	Secrets   [][]byte // HMAC keys, the newest first
	Pairs     [][]byte // ed25519 private keys, for v1a
	Retired   []Retired
	Beside    *Beside // a second signature in headers of its own; nil is none

	Headers     []Header // custom ones, in this order
	Optional    []string // opt-in headers, see Optional
	Certificate []byte   // PEM, for TLS towards the endpoint; with Key
	Key         []byte
}

// Retired is a key that was replaced: it signs, last of all, until it ends.
type Retired struct {
	Key   []byte
	Pair  bool // an ed25519 private key
	Until time.Time
}

// Beside is a second signature. Without Secrets it uses the keys of the first; a template, the shared
// secrets among them.
type Beside struct {
	Signature
	Secrets [][]byte
}

// Header is a custom header field.
type Header struct{ Name, Value string }

// Opt-in headers, by the names that a Spec chooses them with.
const (
	OptRateLimit   = "ratelimit"   // RateLimit-Policy and RateLimit, draft-ietf-httpapi-ratelimit-headers-11
	OptCloudEvents = "cloudevents" // ce-*: CloudEvents in binary mode
	OptPosition    = "position"    // Fairlane-Position: where the trigger stands in the log
)

// Optional lists the opt-in headers.
var Optional = []string{OptRateLimit, OptCloudEvents, OptPosition}

// Shape is a Spec made ready. Immutable, safe for concurrent use.
type Shape struct {
	signers                          []*signer
	headers                          []byte // as they are sent
	rateLimit, cloudEvents, position bool
	cert                             *tls.Certificate
}

// Shape checks the Spec and makes it ready. Its errors are *SpecError; they hold no value of it.
func (s *Spec) Shape() (*Shape, error) {
	sh := &Shape{}
	if err := sh.sign(s); err != nil {
		return nil, err
	}
	if err := sh.choose(s.Optional); err != nil {
		return nil, err
	}
	taken, err := sh.taken()
	if err != nil {
		return nil, err
	}
	if sh.headers, err = compileHeaders(s.Headers, taken); err != nil {
		return nil, err
	}
	sh.cert, err = parseCertificate(s.Certificate, s.Key)
	return sh, err
}

// WantsEvent reports whether Request.Event is needed.
func (s *Shape) WantsEvent() bool { return s.cloudEvents || s.position }

func (s *Shape) sign(spec *Spec) error {
	keys, err := spec.keys()
	if err != nil {
		return err
	}
	first, err := newSigner("signature", &spec.Signature, keys)
	if err != nil {
		return err
	}
	s.signers = []*signer{first}
	if spec.Beside == nil {
		return nil
	}
	switch {
	case len(spec.Beside.Secrets) > 0:
		keys = secretKeys(spec.Beside.Secrets)
	case spec.Beside.Profile == Template:
		keys = slices.DeleteFunc(slices.Clone(keys), func(k key) bool { return k.pair != nil })
		if len(keys) == 0 {
			return bad("signature_beside.secrets", "is needed: a template signs with shared secrets, and there is none to share")
		}
	}
	second, err := newSigner("signature_beside", &spec.Beside.Signature, keys)
	s.signers = append(s.signers, second)
	return err
}

func secretKeys(secrets [][]byte) (keys []key) {
	for _, b := range secrets {
		keys = append(keys, key{secret: b})
	}
	return keys
}

func (s *Spec) keys() ([]key, error) {
	keys := secretKeys(s.Secrets)
	for _, b := range s.Pairs {
		if len(b) != ed25519.PrivateKeySize {
			return nil, bad("secrets", "a key pair has %d bytes, must have %d", len(b), ed25519.PrivateKeySize)
		}
		keys = append(keys, key{pair: b})
	}
	if len(keys) == 0 {
		return nil, bad("secrets", "there is no key that signs")
	}
	for _, r := range s.Retired {
		k := key{secret: r.Key, until: r.Until.Unix()}
		if r.Pair {
			k = key{pair: r.Key, until: k.until}
		}
		if r.Pair && len(r.Key) != ed25519.PrivateKeySize {
			return nil, bad("secrets", "a retired key pair has %d bytes", len(r.Key))
		}
		keys = append(keys, k)
	}
	for i := range keys {
		if keys[i].pair == nil && len(keys[i].secret) == 0 {
			return nil, bad("secrets", "a secret is empty")
		}
	}
	return keys, nil
}

func (s *Shape) choose(optional []string) error {
	for _, o := range optional {
		switch o {
		case OptRateLimit:
			s.rateLimit = true
		case OptCloudEvents:
			s.cloudEvents = true
		case OptPosition:
			s.position = true
		default:
			return bad("optional_headers", "must be of %s", strings.Join(Optional, ", "))
		}
	}
	return nil
}

// taken lists the names, in lower case, that the signatures write. Each may be there once.
func (s *Shape) taken() (map[string]bool, error) {
	taken := map[string]bool{}
	for i, sg := range s.signers {
		field := [...]string{"signature", "signature_beside"}[i]
		for _, name := range sg.names() {
			low := strings.ToLower(name)
			switch {
			case !token([]byte(name)) || len(name) > maxName:
				return nil, bad(field+".header", "%s", nameRule)
			case sg.t != nil && reserved(low):
				return nil, bad(field+".header", "is a name that the request needs itself")
			case taken[low]:
				return nil, bad(field, "writes a header that another signature, or another of its fields, writes too")
			}
			taken[low] = true
		}
	}
	return taken, nil
}

// maxKeyText bounds a private key in PEM: RSA up to some 5,000 bits. A longer one takes seconds to sign with.
const maxKeyText = 4 << 10

func parseCertificate(cert, key []byte) (*tls.Certificate, error) {
	if len(cert) == 0 && len(key) == 0 {
		return nil, nil
	}
	if len(key) > maxKeyText {
		return nil, bad("client_certificate", "must have a key of at most %d bytes, which RSA of 4096 bits is", maxKeyText)
	}
	c, err := tls.X509KeyPair(cert, key)
	if err != nil { // its text may quote what it read
		return nil, bad("client_certificate", "must be a certificate chain and its private key, both PEM")
	}
	if c.Leaf == nil {
		c.Leaf, _ = x509.ParseCertificate(c.Certificate[0])
	}
	return &c, nil
}

// live reports whether every signature has a key at now.
func (s *Shape) live(now int64) bool {
	for _, sg := range s.signers {
		if !sg.live(now) {
			return false
		}
	}
	return true
}

// appendFields appends the signatures, what was opted for, and the custom headers.
func (s *Shape) appendFields(b []byte, r *Request, now int64) []byte {
	for _, sg := range s.signers {
		b = sg.appendFields(b, r, now)
	}
	if s.rateLimit && r.Limit >= 0 {
		b = appendRateLimit(b, r)
	}
	if s.position && r.Event != nil {
		b = appendNumber(b, "Fairlane-Position", int64(r.Event.Position))
	}
	if s.cloudEvents && r.Event != nil {
		b = appendCloudEvent(b, r.Event)
	}
	return append(b, s.headers...)
}

// mostSF is the greatest integer of a structured field (RFC 9651).
const mostSF = 999_999_999_999_999

// appendRateLimit appends the two fields of the draft, for the one policy "contract": the burst as
// quota, and as window the time in which all of it accrues. Seconds are rounded up.
func appendRateLimit(b []byte, r *Request) []byte {
	b = append(b, "\r\nRateLimit-Policy: \"contract\";q="...)
	b = strconv.AppendInt(b, min(r.Limit, mostSF), 10)
	if r.Window > 0 {
		b = append(b, ";w="...)
		b = strconv.AppendInt(b, seconds(r.Window), 10)
	}
	b = append(b, "\r\nRateLimit: \"contract\";r="...)
	b = strconv.AppendInt(b, min(max(r.Remaining, 0), mostSF), 10)
	if r.Window > 0 && r.Limit > 0 && r.Remaining < r.Limit {
		b = append(b, ";t="...)
		b = strconv.AppendInt(b, seconds(r.Window/time.Duration(r.Limit)), 10)
	}
	return b
}

// seconds rounds up, to at least 1.
func seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// appendCloudEvent appends the ce- fields of the HTTP binding 1.0.2.
func appendCloudEvent(b []byte, ev *envelope.Event) []byte {
	for _, a := range ev.CloudEvent() {
		b = append(b, "\r\nce-"...)
		b = append(b, a.Name...)
		b = append(b, ": "...)
		b = appendEncoded(b, a.Value)
	}
	return b
}

// appendEncoded percent-encodes what the binding does not let stand: all but visible ASCII, and
// blank, quotation mark and percent sign.
func appendEncoded(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '%' {
			const digits = "0123456789ABCDEF"
			b = append(b, '%', digits[c>>4], digits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}
