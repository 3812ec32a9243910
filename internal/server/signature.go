package server

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// requestsIn is what creation and patch take beside the limits: how requests look.
type requestsIn struct {
	Secrets           []string          `json:"secrets,omitempty"`
	Signature         *signatureView    `json:"signature,omitempty" null:"default"`
	SignatureBeside   *besideIn         `json:"signature_beside,omitempty" null:"default"`
	OverlapUntil      *time.Time        `json:"overlap_until,omitempty" null:"only"`
	Headers           map[string]string `json:"headers,omitempty" null:"default"`
	OptionalHeaders   []string          `json:"optional_headers,omitempty" null:"default"`
	Envelope          string            `json:"envelope,omitempty" null:"default"`
	ClientCertificate *certificateIn    `json:"client_certificate,omitempty" null:"default"`
}

type besideIn struct {
	signatureView
	Secrets []string `json:"secrets,omitempty"`
}

type certificateIn struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// requestsView is what is shown of it. Secrets, keys and the values of custom headers never are.
type requestsView struct {
	Signature         *signatureView   `json:"signature,omitempty"`
	SignatureBeside   *signatureView   `json:"signature_beside,omitempty"`
	PublicKeys        []string         `json:"public_keys,omitempty"`   // of key pairs, for receivers
	OverlapUntil      *time.Time       `json:"overlap_until,omitempty"` // until then retired secrets sign too
	HeaderNames       []string         `json:"header_names,omitempty"`
	OptionalHeaders   []string         `json:"optional_headers,omitempty"`
	Envelope          string           `json:"envelope,omitempty"`
	ClientCertificate *certificateView `json:"client_certificate,omitempty"`
}

// signatureView is a signature profile. All but the profile belong to a template.
type signatureView struct {
	Profile         string `json:"profile"`
	Header          string `json:"header,omitempty"`
	Content         string `json:"content,omitempty"`
	Value           string `json:"value,omitempty"`
	Separator       string `json:"separator,omitempty"`
	Algorithm       string `json:"algorithm,omitempty"`
	Encoding        string `json:"encoding,omitempty"`
	IDHeader        string `json:"id_header,omitempty"`
	TimestampHeader string `json:"timestamp_header,omitempty"`
}

type certificateView struct {
	SHA256   string    `json:"sha256"` // of the leaf
	NotAfter time.Time `json:"not_after"`
}

func viewRequests(r *journal.Requests) requestsView {
	v := requestsView{OptionalHeaders: r.Optional, Envelope: r.Envelope, ClientCertificate: viewCertificate(r.Certificate)}
	if (r.Signature != journal.Signature{}) {
		v.Signature = new(signatureView(r.Signature))
	}
	if r.Beside != nil {
		v.SignatureBeside = new(signatureView(r.Beside.Signature))
	}
	for _, p := range r.Pairs {
		v.PublicKeys = append(v.PublicKeys, delivery.FormatPublic(p))
	}
	for _, k := range r.Retired {
		if v.OverlapUntil == nil || k.Until.After(*v.OverlapUntil) {
			v.OverlapUntil = &k.Until
		}
	}
	for _, h := range r.Headers {
		v.HeaderNames = append(v.HeaderNames, h.Name)
	}
	return v
}

func viewCertificate(text []byte) *certificateView {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(c.Raw)
	return &certificateView{hex.EncodeToString(sum[:]), c.NotAfter}
}

// readRequests reads the fields of requestsIn into sub.
func readRequests(o *object, sub *journal.Subscription) {
	r := &sub.Requests
	o.read("secrets", nil, parseSecrets(func(secrets, pairs [][]byte) {
		sub.Secrets, r.Pairs, r.Retired = secrets, pairs, nil
		if sub.Secrets == nil {
			sub.Secrets = [][]byte{} // none; nil would leave those of before
		}
	}))
	o.inner("signature", func() { r.Signature = journal.Signature{} }, func(in *object) {
		r.Signature = journal.Signature{}
		readSignature(in, &r.Signature)
	})
	o.inner("signature_beside", func() { r.Beside = nil }, func(in *object) {
		r.Beside = &journal.Beside{}
		readSignature(in, &r.Beside.Signature)
		in.read("secrets", nil, parseSecrets(func(secrets, _ [][]byte) { r.Beside.Secrets = secrets }))
	})
	o.read("overlap_until", func() { r.Retired = nil }, func(json.RawMessage) string {
		return "null, which ends the overlap; POST .../rotate begins one"
	})
	o.inner("headers", func() { r.Headers = nil }, func(in *object) { readHeaders(in, r) })
	o.read("optional_headers", func() { r.Optional = nil }, parseOptional(&r.Optional))
	o.read("envelope", func() { r.Envelope = "" }, parseText(&r.Envelope, "the name of an envelope", func(string) bool { return true }))
	o.inner("client_certificate", func() { r.Certificate, r.Key = nil, nil }, func(in *object) {
		var cert, key string
		isText := func(string) bool { return true }
		in.read("certificate", nil, parseText(&cert, "a certificate chain in PEM", isText))
		in.read("key", nil, parseText(&key, "its private key in PEM", isText))
		in.require("certificate", "key")
		r.Certificate, r.Key = []byte(cert), []byte(key)
	})
}

func readSignature(in *object, s *journal.Signature) {
	any := func(string) bool { return true }
	for _, f := range []struct {
		name string
		to   *string
	}{
		{"profile", &s.Profile}, {"header", &s.Header}, {"content", &s.Content}, {"value", &s.Value}, {"separator", &s.Separator},
		{"algorithm", &s.Algorithm}, {"encoding", &s.Encoding}, {"id_header", &s.IDHeader}, {"timestamp_header", &s.TimestampHeader},
	} {
		in.read(f.name, nil, parseText(f.to, "text", any))
	}
	in.require("profile")
}

func readHeaders(in *object, r *journal.Requests) {
	r.Headers = nil
	for _, name := range slices.Clone(in.order) {
		in.read(name, nil, func(raw json.RawMessage) string {
			value, is := text(raw)
			if !is {
				return "text"
			}
			r.Headers = append(r.Headers, journal.Attribute{Name: name, Value: value})
			return ""
		})
	}
}

func parseOptional(to *[]string) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		list, is := texts(raw)
		if !is || slices.ContainsFunc(list, func(s string) bool { return !slices.Contains(delivery.Optional, s) }) {
			return fmt.Sprintf("a list of some of %q", delivery.Optional)
		}
		*to = slices.Compact(slices.Sorted(slices.Values(list)))
		return ""
	}
}

// parseSecrets reads a list of keys and hands them on by kind, in their order.
func parseSecrets(set func(secrets, pairs [][]byte)) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		list, is := texts(raw)
		rule := fmt.Sprintf("a list of 1 to %d secrets, each %s", maxSecrets, delivery.SecretForms)
		if !is || len(list) == 0 || len(list) > maxSecrets {
			return rule
		}
		var secrets, pairs [][]byte
		for i, s := range list {
			key, pair, err := delivery.ParseKey(s)
			switch {
			case err != nil:
				return fmt.Sprintf("%s; entry %d: %v", rule, i, err)
			case pair:
				pairs = append(pairs, key)
			default:
				secrets = append(secrets, key)
			}
		}
		set(secrets, pairs)
		return ""
	}
}

// inner reads a field that is an object itself.
func (o *object) inner(name string, reset func(), read func(*object)) {
	o.read(name, reset, func(raw json.RawMessage) string {
		in, rule := parseObject(raw, o.path+name+".")
		if rule != "" {
			return "an object"
		}
		read(in)
		_ = in.err() // collects what is unknown
		o.problems = append(o.problems, in.problems...)
		return ""
	})
}

// Bounds of a rotation.
const (
	maxRetired = 4
)

// rotateIn is the body of POST /v1/subscriptions/{id}/rotate.
type rotateIn struct {
	Kind    string `json:"kind,omitempty"`    // v1 (a shared secret) or v1a (a key pair); v1 if absent
	Overlap string `json:"overlap,omitempty"` // how long the replaced ones go on signing; 24h if absent, 0s for not at all
}

// rotateSecret is POST /v1/subscriptions/{id}/rotate: a new key takes over from those of its kind,
// which sign beside it until the overlap ends. A new secret is answered once.
func (s *Server) rotateSecret(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, false)
	if err != nil {
		return err
	}
	kind, overlap := "v1", defaultOverlap
	o.read("kind", nil, parseText(&kind, "v1 or v1a", func(k string) bool { return k == "v1" || k == "v1a" }))
	o.read("overlap", nil, parseOverlap(&overlap))
	if err := o.err(); err != nil {
		return err
	}
	return s.alone(w, r, func() (int, any, error) {
		sub, err := s.subscription(r)
		if err != nil {
			return 0, nil, err
		}
		made, err := rotate(&sub, kind, overlap, time.Now())
		if err != nil {
			return 0, nil, err
		}
		stored, err := s.fanout.PutSubscription(r.Context(), sub)
		if err != nil {
			return 0, nil, err
		}
		v := viewSubscription(&stored)
		v.Secret = made
		return http.StatusOK, v, nil
	})
}

// overlaps reports whether every signature that uses the subscription's secrets has room for two.
func overlaps(r *journal.Requests) bool {
	first := delivery.Signature(r.Signature)
	if r.Beside == nil || len(r.Beside.Secrets) > 0 {
		return first.Multiple()
	}
	second := delivery.Signature(r.Beside.Signature)
	return first.Multiple() && second.Multiple()
}

// rotate changes sub and returns the text of the new secret; a key pair's private half is nobody's.
func rotate(sub *journal.Subscription, kind string, overlap time.Duration, now time.Time) (string, error) {
	r := &sub.Requests
	if overlap > 0 && kind == "v1" && !overlaps(r) {
		return "", refuse(invalid, "overlap", "must be 0s: a signature template carries one signature; a separator would let it carry two")
	}
	r.Retired = slices.DeleteFunc(r.Retired, func(k journal.Retired) bool { return !now.Before(k.Until) })
	old := &sub.Secrets
	if kind == "v1a" {
		old = &r.Pairs
	}
	if overlap > 0 {
		until := now.Add(overlap).UTC().Truncate(time.Second)
		for _, k := range *old {
			r.Retired = append(r.Retired, journal.Retired{Key: k, Pair: kind == "v1a", Until: until})
		}
	}
	if len(r.Retired) > maxRetired {
		return "", &problem{code: conflict, detail: fmt.Sprintf(
			"%d secrets would overlap, %d may; wait for an overlap to end, or end it: PATCH with overlap_until null", len(r.Retired), maxRetired)}
	}
	if kind == "v1a" {
		*old = [][]byte{delivery.NewPair()}
		return "", nil // its public half is among public_keys
	}
	secret := delivery.NewSecret()
	*old = [][]byte{secret}
	return delivery.FormatSecret(secret), nil
}
