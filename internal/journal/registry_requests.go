package journal

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// Requests says how requests to one endpoint differ from the default; the zero value is the default.
// It is stored encrypted as a whole. What the names in it mean is the sender's business: here it is
// kept, bounded and copied.
type Requests struct {
	Signature   Signature   `json:"signature,omitzero"`
	Pairs       [][]byte    `json:"pairs,omitempty"`    // ed25519 private keys that sign beside Secrets
	Retired     []Retired   `json:"retired,omitempty"`  // keys of before a rotation; they sign until they end
	Beside      *Beside     `json:"beside,omitempty"`   // a second signature, during a migration
	Headers     []Attribute `json:"headers,omitempty"`  // custom ones
	Optional    []string    `json:"optional,omitempty"` // opt-in headers of ours
	Envelope    string      `json:"envelope,omitempty"` // "" is the payload as posted
	Certificate []byte      `json:"certificate,omitempty"`
	Key         []byte      `json:"key,omitempty"` // of Certificate; both PEM
}

// Signature is how requests are signed; the zero value is Standard Webhooks.
type Signature struct {
	Profile         string `json:"profile,omitempty"`
	Header          string `json:"header,omitempty"`
	Content         string `json:"content,omitempty"`
	Value           string `json:"value,omitempty"`
	Separator       string `json:"separator,omitempty"`
	Algorithm       string `json:"algorithm,omitempty"`
	Encoding        string `json:"encoding,omitempty"`
	IDHeader        string `json:"id_header,omitempty"`
	TimestampHeader string `json:"timestamp_header,omitempty"`
}

// Beside is a second signature. Without Secrets it uses the first one's keys.
type Beside struct {
	Signature
	Secrets [][]byte `json:"secrets,omitempty"`
}

// Retired is a key that a newer one has replaced.
type Retired struct {
	Key   []byte    `json:"key"`
	Pair  bool      `json:"pair,omitempty"` // an ed25519 private key
	Until time.Time `json:"until"`          // it signs no more from here on
}

// Sizes of what Requests may hold.
const (
	maxHeaders     = 32
	maxHeaderBytes = 8 << 10
	maxPEM         = 32 << 10
	pairBytes      = 64
)

// IsZero reports whether r is the default.
func (r *Requests) IsZero() bool {
	return r.Signature == Signature{} && r.Beside == nil && r.Envelope == "" && len(r.Certificate) == 0 && len(r.Key) == 0 &&
		len(r.Pairs) == 0 && len(r.Retired) == 0 && len(r.Headers) == 0 && len(r.Optional) == 0
}

func (r *Requests) clone() Requests {
	c := *r
	c.Pairs = cloneEach(r.Pairs)
	c.Retired = slices.Clone(r.Retired)
	for i := range c.Retired {
		c.Retired[i].Key = bytes.Clone(c.Retired[i].Key)
	}
	if r.Beside != nil {
		c.Beside = &Beside{r.Beside.Signature, cloneEach(r.Beside.Secrets)}
	}
	c.Headers, c.Optional = slices.Clone(r.Headers), slices.Clone(r.Optional)
	c.Certificate, c.Key = bytes.Clone(r.Certificate), bytes.Clone(r.Key)
	return c
}

func checkRequests(r *Requests) error {
	errs := []error{
		checkSignature("signature", &r.Signature),
		checkText("envelope", r.Envelope, 0, maxText),
		checkList("optional", r.Optional, maxHeaders, maxText),
		checkHeaders(r.Headers),
	}
	if len(r.Pairs)+len(r.Retired) > maxSecrets {
		errs = append(errs, &FieldError{"secrets", fmt.Sprintf("has %d key pairs and retired keys, may have %d", len(r.Pairs)+len(r.Retired), maxSecrets)})
	}
	for i, p := range r.Pairs {
		if len(p) != pairBytes {
			errs = append(errs, &FieldError{fmt.Sprintf("pairs[%d]", i), fmt.Sprintf("has %d bytes, must have %d", len(p), pairBytes)})
		}
	}
	if r.Beside != nil {
		errs = append(errs, checkSignature("signature_beside", &r.Beside.Signature), checkSecrets(r.Beside.Secrets))
	}
	if len(r.Certificate) > maxPEM || len(r.Key) > maxPEM {
		errs = append(errs, &FieldError{"certificate", fmt.Sprintf("is longer than %d bytes", maxPEM)})
	}
	return firstError(errs...)
}

func checkSignature(field string, s *Signature) error {
	for _, text := range []string{s.Profile, s.Header, s.Content, s.Value, s.Separator, s.Algorithm, s.Encoding, s.IDHeader, s.TimestampHeader} {
		if err := checkText(field, text, 0, maxText); err != nil {
			return err
		}
	}
	return nil
}

func checkHeaders(headers []Attribute) error {
	if len(headers) > maxHeaders {
		return &FieldError{"headers", fmt.Sprintf("has %d entries, may have %d", len(headers), maxHeaders)}
	}
	size := 0
	for i, h := range headers {
		size += len(h.Name) + len(h.Value)
		if err := checkText(fmt.Sprintf("headers[%d]", i), h.Name, 1, maxText); err != nil {
			return err
		}
	}
	if size > maxHeaderBytes {
		return &FieldError{"headers", fmt.Sprintf("is %d bytes, may be %d", size, maxHeaderBytes)}
	}
	return nil
}
