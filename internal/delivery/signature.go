package delivery

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // as an HMAC, for receivers that verify nothing else
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"sync"
)

// Signature says how requests are signed. The zero value is the profile "standard".
//
//	standard   Standard Webhooks: webhook-id, webhook-timestamp, webhook-signature
//	svix       the same bytes under the names svix-id, svix-timestamp, svix-signature
//	template   an HMAC in a header of any name, by the fields below
//
// Content is what is signed: text with {id}, {timestamp} and {body}, which must be in it. Value is
// what the header says: text with {timestamp}, {id} and {signature}, once. With a Separator, Value
// may carry several signatures, one for each key: the part around {signature}, between separators,
// is repeated. The timestamp is in Unix seconds, of this attempt.
type Signature struct {
	Profile string // "" is standard

	// Of a template.
	Header          string // carries Value
	Content         string // "" is {body}
	Value           string // "" is {signature}
	Separator       string // "" allows one key
	Algorithm       string // "" is hmac-sha256; hmac-sha512, hmac-sha1
	Encoding        string // "" is hex; base64
	IDHeader        string // "" is none; else it carries the id
	TimestampHeader string // "" is none; else it carries the timestamp
}

// Profiles of a Signature.
const (
	Standard = "standard"
	Svix     = "svix"
	Template = "template"
)

// SpecError is a wrong part of a Spec: the field, and the rule that it breaks. It holds no value.
type SpecError struct{ Field, Rule string }

func (e *SpecError) Error() string { return e.Field + ": " + e.Rule }

func bad(field, rule string, args ...any) error {
	return &SpecError{field, fmt.Sprintf(rule, args...)}
}

// Multiple reports whether s can carry the signatures of more than one key.
func (s *Signature) Multiple() bool { return s.Profile != Template || s.Separator != "" }

// key signs until an instant, in Unix seconds; 0 is for ever.
type key struct {
	secret []byte
	pair   ed25519.PrivateKey // nil: secret is an HMAC's
	until  int64
}

func (k *key) live(now int64) bool { return k.until == 0 || now < k.until }

const maxTemplate = 512 // bytes of a content, and of a value

// signer is a Signature with its keys. Immutable.
type signer struct {
	keys []key

	prefix string // of Standard Webhooks' names; "" is a template
	t      *template
}

// template is a Signature of that profile, taken apart.
type template struct {
	header, idHeader, timeHeader string
	content                      []string // pieces: text, or one of the placeholders
	before, unit, after          []string // of the value
	separator                    string
	hash                         func() hash.Hash
	encode                       func(dst, sum []byte) []byte
}

// newSigner compiles s; field names it in errors.
func newSigner(field string, s *Signature, keys []key) (*signer, error) {
	switch s.Profile {
	case "", Standard:
		return &signer{keys: keys, prefix: "webhook"}, onlyProfile(field, s)
	case Svix:
		return &signer{keys: keys, prefix: "svix"}, onlyProfile(field, s)
	case Template:
		t, err := newTemplate(field, s)
		if err == nil {
			err = templateKeys(field, s, keys)
		}
		return &signer{keys: keys, t: t}, err
	}
	return nil, bad(field+".profile", "must be standard, svix or template")
}

func onlyProfile(field string, s *Signature) error {
	if (*s != Signature{Profile: s.Profile}) {
		return bad(field, "has fields that only the profile template takes")
	}
	return nil
}

func templateKeys(field string, s *Signature, keys []key) error {
	lasting := 0
	for i := range keys {
		if keys[i].pair != nil {
			return bad(field+".profile", "template signs with shared secrets; a key pair (whsk_) needs standard or svix")
		}
		if keys[i].until == 0 {
			lasting++
		}
	}
	if s.Separator == "" && lasting > 1 {
		return bad(field+".separator", "is needed for more than one secret")
	}
	return nil
}

func newTemplate(field string, s *Signature) (*template, error) {
	t := &template{header: s.Header, idHeader: s.IDHeader, timeHeader: s.TimestampHeader, separator: s.Separator}
	content, value := s.Content, s.Value
	if content == "" {
		content = "{body}"
	}
	if value == "" {
		value = "{signature}"
	}
	var err error
	if t.content, err = pieces(field+".content", content, "{id}", "{timestamp}", "{body}"); err != nil {
		return nil, err
	}
	if strings.Count(content, "{body}") != 1 || len(content) > maxTemplate { // signing costs what it holds
		return nil, bad(field+".content", "must hold {body}, once, and be at most %d bytes long", maxTemplate)
	}
	if err := t.setValue(field, value); err != nil {
		return nil, err
	}
	if t.hash = hashes[s.Algorithm]; t.hash == nil {
		return nil, bad(field+".algorithm", "must be hmac-sha256, hmac-sha512 or hmac-sha1")
	}
	if t.encode = encodings[s.Encoding]; t.encode == nil {
		return nil, bad(field+".encoding", "must be hex or base64")
	}
	return t, nil
}

var (
	hashes = map[string]func() hash.Hash{
		"": sha256.New, "hmac-sha256": sha256.New, "hmac-sha512": sha512.New, "hmac-sha1": sha1.New,
	}
	encodings = map[string]func(dst, sum []byte) []byte{
		"": hex.AppendEncode, "hex": hex.AppendEncode, "base64": base64.StdEncoding.AppendEncode,
	}
)

// setValue splits the value around its signature.
func (t *template) setValue(field, value string) (err error) {
	at := strings.Index(value, "{signature}")
	switch {
	case at < 0 || strings.Count(value, "{signature}") > 1:
		return bad(field+".value", "must hold {signature} once")
	case !visible(value) || len(value) > maxTemplate:
		return bad(field+".value", "must be at most %d bytes of visible ASCII and blanks, not at its ends", maxTemplate)
	case t.separator != "" && !visible("x"+t.separator+"x"):
		return bad(field+".separator", "must be visible ASCII and blanks")
	}
	from, to := 0, len(value)
	if t.separator != "" {
		if i := strings.LastIndex(value[:at], t.separator); i >= 0 {
			from = i + len(t.separator)
		}
		if i := strings.Index(value[at:], t.separator); i >= 0 {
			to = at + i
		}
	}
	for _, part := range []struct {
		to   *[]string
		text string
	}{{&t.before, value[:from]}, {&t.unit, value[from:to]}, {&t.after, value[to:]}} {
		if *part.to, err = pieces(field+".value", part.text, "{id}", "{timestamp}", "{signature}"); err != nil {
			return err
		}
	}
	return nil
}

// pieces cuts text at its placeholders.
func pieces(field, text string, known ...string) (list []string, err error) {
	for text != "" {
		open := strings.IndexByte(text, '{')
		if open < 0 {
			return append(list, text), nil
		}
		if open > 0 {
			list = append(list, text[:open])
		}
		end := strings.IndexByte(text[open:], '}')
		if end < 0 || !contains(known, text[open:open+end+1]) {
			return nil, bad(field, "may hold %s, and no other {", strings.Join(known, ", "))
		}
		list = append(list, text[open:open+end+1])
		text = text[open+end+1:]
	}
	return list, nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// names lists the header names that s writes.
func (s *signer) names() []string {
	if s.t == nil {
		return []string{s.prefix + "-id", s.prefix + "-timestamp", s.prefix + "-signature"}
	}
	list := []string{s.t.header}
	for _, name := range []string{s.t.idHeader, s.t.timeHeader} {
		if name != "" {
			list = append(list, name)
		}
	}
	return list
}

// live reports whether any key still signs.
func (s *signer) live(now int64) bool {
	for i := range s.keys {
		if s.keys[i].live(now) {
			return true
		}
	}
	return false
}

// appendFields appends the signature's header fields.
func (s *signer) appendFields(b []byte, r *Request, now int64) []byte {
	if s.t != nil {
		return s.t.appendFields(b, r, now, s.keys)
	}
	b = append(s.appendName(b, "-id: "), r.ID...)
	b = strconv.AppendInt(s.appendName(b, "-timestamp: "), now, 10)
	b = s.appendName(b, "-signature: ")
	first := true
	for i := range s.keys {
		k := &s.keys[i]
		if !k.live(now) {
			continue
		}
		if !first {
			b = append(b, ' ')
		}
		first = false
		if k.pair != nil {
			b = appendV1a(b, r.ID, now, r.Payload, k.pair)
		} else {
			b = appendV1(b, r.ID, now, r.Payload, k.secret)
		}
	}
	return b
}

func (s *signer) appendName(b []byte, name string) []byte {
	return append(append(append(b, "\r\n"...), s.prefix...), name...)
}

// scratch holds signed messages: ed25519 reads its message twice and takes it in one piece.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// appendV1a appends "v1a," and the base64 of the ed25519 signature over {id}.{timestamp}.{body}.
func appendV1a(dst []byte, id string, timestamp int64, body []byte, pair ed25519.PrivateKey) []byte {
	buf := scratch.Get().(*[]byte)
	m := append(append((*buf)[:0], id...), '.')
	m = append(strconv.AppendInt(m, timestamp, 10), '.')
	m = append(m, body...)
	dst = append(dst, "v1a,"...)
	dst = base64.StdEncoding.AppendEncode(dst, ed25519.Sign(pair, m))
	*buf = m
	scratch.Put(buf)
	return dst
}

func (t *template) appendFields(b []byte, r *Request, now int64, keys []key) []byte {
	if t.idHeader != "" {
		b = appendField(b, t.idHeader, r.ID)
	}
	if t.timeHeader != "" {
		b = appendNumber(b, t.timeHeader, now)
	}
	b = appendField(b, t.header, "")
	b = t.appendPieces(b, t.before, r, now, nil)
	first := true
	for i := range keys {
		if !keys[i].live(now) {
			continue
		}
		if !first && t.separator == "" {
			break // a value for one signature: the newest key's
		}
		if !first {
			b = append(b, t.separator...)
		}
		first = false
		b = t.appendPieces(b, t.unit, r, now, keys[i].secret)
	}
	return t.appendPieces(b, t.after, r, now, nil)
}

// appendPieces appends a part of the value, signed with secret where it says so.
func (t *template) appendPieces(b []byte, list []string, r *Request, now int64, secret []byte) []byte {
	for _, p := range list {
		switch p {
		case "{id}":
			b = append(b, r.ID...)
		case "{timestamp}":
			b = strconv.AppendInt(b, now, 10)
		case "{signature}":
			b = t.encode(b, t.sum(r, now, secret))
		default:
			b = append(b, p...)
		}
	}
	return b
}

func (t *template) sum(r *Request, now int64, secret []byte) []byte {
	mac := hmac.New(t.hash, secret)
	for _, p := range t.content {
		switch p {
		case "{id}":
			mac.Write([]byte(r.ID))
		case "{timestamp}":
			mac.Write(strconv.AppendInt(nil, now, 10))
		case "{body}":
			mac.Write(r.Payload)
		default:
			mac.Write([]byte(p))
		}
	}
	return mac.Sum(nil)
}
