package delivery

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlane-dev/fairlane/engine"
)

// The vectors that the receivers' libraries are tested with.
const (
	vectorID     = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime   = 1614265330
	vectorBody   = `{"test": 2432232314}`
	vectorPair   = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	vectorPublic = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
	vectorSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

func parseKey(t testing.TB, text string) []byte {
	t.Helper()
	b, _, err := ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func shape(t testing.TB, s Spec) *Shape {
	t.Helper()
	sh, err := s.Shape()
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

// fieldsOf are the fields that a shape writes for a request, by their names in lower case.
func fieldsOf(s *Shape, r *Request, now int64) map[string]string {
	out := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimPrefix(string(s.appendFields(nil, r, now)), "\r\n"), "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		out[strings.ToLower(name)] = value
	}
	return out
}

func TestKeyPairSignsTheStandardsVector(t *testing.T) {
	pair := parseKey(t, vectorPair)
	if FormatPublic(pair) != vectorPublic || FormatPublic(nil) != "" {
		t.Errorf("public half %s, want %s", FormatPublic(pair), vectorPublic)
	}
	s := shape(t, Spec{Secrets: [][]byte{parseKey(t, vectorSecret)}, Pairs: [][]byte{pair}})
	got := fieldsOf(s, &Request{ID: vectorID, Payload: []byte(vectorBody)}, vectorTime)
	want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= " +
		"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
	if got["webhook-signature"] != want || got["webhook-id"] != vectorID || got["webhook-timestamp"] != strconv.Itoa(vectorTime) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestProfilesWriteTheirHeaders(t *testing.T) {
	mac := func(key, content string) []byte {
		m := hmac.New(sha256.New, []byte(key))
		m.Write([]byte(content))
		return m.Sum(nil)
	}
	const body, at = `{"n":1}`, "1700000000"
	for name, c := range map[string]struct {
		s    Signature
		keys []string
		want map[string]string
	}{
		"svix": {Signature{Profile: Svix}, []string{"k1"}, map[string]string{
			"svix-id": "msg_1", "svix-timestamp": at, "svix-signature": "v1," + base64.StdEncoding.EncodeToString(mac("k1", "msg_1."+at+"."+body))}},
		"hex over the body": {Signature{Profile: Template, Header: "X-Hub-Signature-256", Value: "sha256={signature}"}, []string{"k1"}, map[string]string{
			"x-hub-signature-256": "sha256=" + hex.EncodeToString(mac("k1", body))}},
		"all defaults": {Signature{Profile: Template, Header: "X-Sig"}, []string{"k1"}, map[string]string{"x-sig": hex.EncodeToString(mac("k1", body))}},
		"t= and v1=": {Signature{Profile: Template, Header: "Stripe-Signature", Content: "{timestamp}.{body}", Value: "t={timestamp},v1={signature}", Separator: ","},
			[]string{"new", "old"}, map[string]string{"stripe-signature": "t=" + at + ",v1=" + hex.EncodeToString(mac("new", at+"."+body)) + ",v1=" + hex.EncodeToString(mac("old", at+"."+body))}},
		"the signature in the middle": {Signature{Profile: Template, Header: "S", Value: "a;s={signature};t={timestamp}", Separator: ";"},
			[]string{"new", "old"}, map[string]string{"s": "a;s=" + hex.EncodeToString(mac("new", body)) + ";s=" + hex.EncodeToString(mac("old", body)) + ";t=" + at}},
		"headers of its own for id and time": {Signature{Profile: Template, Header: "X-Slack-Signature", Content: "v0:{timestamp}:{id}:{body}", Value: "v0={signature}",
			TimestampHeader: "X-Slack-Request-Timestamp", IDHeader: "X-Id", Encoding: "base64"}, []string{"k1"}, map[string]string{
			"x-slack-signature": "v0=" + base64.StdEncoding.EncodeToString(mac("k1", "v0:"+at+":msg_1:"+body)), "x-slack-request-timestamp": at, "x-id": "msg_1"}},
	} {
		spec := Spec{Signature: c.s}
		for _, k := range c.keys {
			spec.Secrets = append(spec.Secrets, []byte(k))
		}
		got := fieldsOf(shape(t, spec), &Request{ID: "msg_1", Payload: []byte(body)}, 1700000000)
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		for k, v := range c.want {
			if got[k] != v {
				t.Errorf("%s: %s is %q, want %q", name, k, got[k], v)
			}
		}
	}
}

func TestWrongSignaturesAreRefusedByFieldAndRule(t *testing.T) {
	const hidden = "SECRETVALUE"
	tmpl := func(edit func(*Signature)) Spec {
		s := Spec{Secrets: [][]byte{[]byte(hidden)}, Signature: Signature{Profile: Template, Header: "X-Sig"}}
		edit(&s.Signature)
		return s
	}
	two := tmpl(func(*Signature) {})
	two.Secrets = append(two.Secrets, []byte("second"))
	pair := tmpl(func(*Signature) {})
	pair.Pairs = [][]byte{NewPair()}
	for name, c := range map[string]struct {
		spec        Spec
		field, rule string
	}{
		"no key":                {Spec{}, "secrets", "no key"},
		"empty secret":          {Spec{Secrets: [][]byte{{}}}, "secrets", "empty"},
		"short pair":            {Spec{Pairs: [][]byte{[]byte(hidden)}}, "secrets", "64"},
		"unknown profile":       {Spec{Secrets: [][]byte{[]byte(hidden)}, Signature: Signature{Profile: "github"}}, "signature.profile", "standard, svix or template"},
		"fields of a template":  {Spec{Secrets: [][]byte{[]byte(hidden)}, Signature: Signature{Header: "X"}}, "signature", "only the profile template"},
		"no header":             {tmpl(func(s *Signature) { s.Header = "" }), "signature.header", "token"},
		"bad header":            {tmpl(func(s *Signature) { s.Header = "X Sig" }), "signature.header", "token"},
		"break in the header":   {tmpl(func(s *Signature) { s.Header = "X\r\nY" }), "signature.header", "token"},
		"framing header":        {tmpl(func(s *Signature) { s.Header = "content-LENGTH" }), "signature.header", "needs itself"},
		"one header twice":      {tmpl(func(s *Signature) { s.TimestampHeader = "x-sig" }), "signature", "another"},
		"the body twice":        {tmpl(func(s *Signature) { s.Content = "{body}{body}" }), "signature.content", "once"},
		"a long content":        {tmpl(func(s *Signature) { s.Content = "{body}" + strings.Repeat("{id}", 200) }), "signature.content", "512"},
		"a long value":          {tmpl(func(s *Signature) { s.Value = "{signature}" + strings.Repeat("{id}", 200) }), "signature.value", "512"},
		"content without body":  {tmpl(func(s *Signature) { s.Content = "{id}" }), "signature.content", "{body}"},
		"unknown placeholder":   {tmpl(func(s *Signature) { s.Content = "{url}.{body}" }), "signature.content", "no other {"},
		"open brace":            {tmpl(func(s *Signature) { s.Value = "{signature}{" }), "signature.value", "no other {"},
		"value without":         {tmpl(func(s *Signature) { s.Value = "t={timestamp}" }), "signature.value", "once"},
		"value with two":        {tmpl(func(s *Signature) { s.Value = "{signature}{signature}" }), "signature.value", "once"},
		"value with body":       {tmpl(func(s *Signature) { s.Value = "{body}{signature}" }), "signature.value", "no other {"},
		"value with a break":    {tmpl(func(s *Signature) { s.Value = "a\r\nX: {signature}" }), "signature.value", "visible"},
		"separator with break":  {tmpl(func(s *Signature) { s.Separator = "\n" }), "signature.separator", "visible"},
		"unknown algorithm":     {tmpl(func(s *Signature) { s.Algorithm = "md5" }), "signature.algorithm", "hmac-sha256"},
		"unknown encoding":      {tmpl(func(s *Signature) { s.Encoding = "base32" }), "signature.encoding", "hex or base64"},
		"two without separator": {two, "signature.separator", "more than one"},
		"pair in a template":    {pair, "signature.profile", "shared secrets"},
		"the same twice":        {Spec{Secrets: [][]byte{[]byte(hidden)}, Beside: &Beside{}}, "signature_beside", "another signature"},
		"beside unknown":        {Spec{Secrets: [][]byte{[]byte(hidden)}, Beside: &Beside{Signature: Signature{Profile: "x"}}}, "signature_beside.profile", "standard"},
		"unknown option":        {Spec{Secrets: [][]byte{[]byte(hidden)}, Optional: []string{"all"}}, "optional_headers", "ratelimit"},
		"a key that is slow":    {Spec{Secrets: [][]byte{[]byte(hidden)}, Certificate: []byte(hidden), Key: bytes.Repeat([]byte("x"), maxKeyText+1)}, "client_certificate", "4096"},
		"no certificate":        {Spec{Secrets: [][]byte{[]byte(hidden)}, Certificate: []byte(hidden), Key: []byte(hidden)}, "client_certificate", "PEM"},
	} {
		_, err := c.spec.Shape()
		wrong := new(SpecError)
		if !errors.As(err, &wrong) || wrong.Field != c.field || !strings.Contains(wrong.Rule, c.rule) {
			t.Errorf("%s: %v, want %s: ...%s...", name, err, c.field, c.rule)
			continue
		}
		if strings.Contains(err.Error(), hidden) {
			t.Errorf("%s: the error repeats the secret: %v", name, err)
		}
	}
}

// Field case 56. During the overlap old and new verify, and from its end on the new one alone.
func TestARotatedSecretSignsUntilItsOverlapEnds(t *testing.T) {
	old, fresh := []byte("old old old old old old old!"), []byte("new new new new new new new!")
	end := time.Unix(1700000000, 0)
	s := shape(t, Spec{Secrets: [][]byte{fresh}, Retired: []Retired{{Key: old, Until: end}}})
	for _, c := range []struct {
		at  time.Time
		old bool
	}{{end.Add(-time.Hour), true}, {end.Add(-time.Second), true}, {end, false}, {end.Add(time.Hour), false}} {
		f := fieldsOf(s, &Request{ID: "msg_1", Payload: []byte("x")}, c.at.Unix())
		v1 := func(k []byte) bool {
			return strings.Contains(f["webhook-signature"], string(AppendSignature(nil, "msg_1", c.at.Unix(), []byte("x"), [][]byte{k})))
		}
		if !v1(fresh) || v1(old) != c.old {
			t.Errorf("%v before the end: %s", end.Sub(c.at), f["webhook-signature"])
		}
	}
	single := shape(t, Spec{Signature: Signature{Profile: Template, Header: "S"}, Secrets: [][]byte{fresh}, Retired: []Retired{{Key: old, Until: end}}})
	if f := fieldsOf(single, &Request{ID: "m", Payload: []byte("x")}, 1); len(f["s"]) != 64 {
		t.Errorf("a header for one signature: %q", f["s"])
	}
}

// A second signature beside the first lets receivers move one by one.
func TestTwoProfilesStandBesideEachOther(t *testing.T) {
	old := []byte("a secret of another system, made there")
	s := shape(t, Spec{Secrets: [][]byte{secret}, Beside: &Beside{Signature{Profile: Svix}, [][]byte{old}}})
	now := time.Now().Unix()
	f := fieldsOf(s, &Request{ID: "msg_1", Payload: []byte("x")}, now)
	if err := verify(secret, "msg_1", now, f["webhook-signature"], []byte("x")); err != nil {
		t.Error(err)
	}
	if err := verify(old, "msg_1", now, f["svix-signature"], []byte("x")); err != nil || f["svix-id"] != "msg_1" {
		t.Error(err, f)
	}
	same := shape(t, Spec{Secrets: [][]byte{secret}, Beside: &Beside{Signature: Signature{Profile: Svix}}})
	f = fieldsOf(same, &Request{ID: "msg_1", Payload: []byte("x")}, now)
	if f["svix-signature"] != f["webhook-signature"] {
		t.Errorf("without secrets of its own: %q", f)
	}
}

func TestKeysOfEveryTextForm(t *testing.T) {
	for text, want := range map[string]string{
		"text:a":            "a",
		"text:whsec_as:is ": "whsec_as:is ",
		"text:caf\u00e9":    "caf\u00e9",
		"hex:00ff10":        "\x00\xff\x10",
		"base64:AP8Q":       "\x00\xff\x10",
		"hex:" + strings.Repeat("00", MaxImported): strings.Repeat("\x00", MaxImported),
	} {
		if b, pair, err := ParseKey(text); string(b) != want || pair || err != nil {
			t.Errorf("%.40q: %q, %v, %v", text, b, pair, err)
		}
	}
	for text, rule := range map[string]string{
		"text:": "has 0 bytes", "hex:": "has 0 bytes", "hex:0": "not in that encoding", "hex:xx": "not in that encoding", "base64:A": "not in that encoding",
		"hex:" + strings.Repeat("00", MaxImported+1): "has 513 bytes", "raw:SECRET": "must begin with", "whsk_": "64 bytes",
		"whsk_" + strings.Repeat("A", 86) + "==": "do not belong together", vectorPublic: "public key", "hwsec_SECRET": "mistyped", "": "is empty",
	} {
		if _, _, err := ParseKey(text); !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), rule) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%.40q: %v, want %q", text, err, rule)
		}
	}
}

// Field case 57. Bodies and keys are bytes, whatever they spell; a receiver that verifies bytes agrees.
func TestAnyBytesAreSignedAsTheyAre(t *testing.T) {
	pair := NewPair()
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		k := rapid.SliceOfN(rapid.Byte(), 1, MaxImported).Draw(t, "key")
		spec := Spec{Secrets: [][]byte{k}, Pairs: [][]byte{pair}, Beside: &Beside{Signature: Signature{Profile: Svix}, Secrets: [][]byte{k}}}
		s, err := spec.Shape()
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().Unix()
		f := fieldsOf(s, &Request{ID: "msg_1", Payload: body}, now)
		for _, name := range []string{"webhook-signature", "svix-signature"} {
			if err := verify(k, "msg_1", now, f[name], body); err != nil {
				t.Fatal(name, err)
			}
		}
		_, v1a, _ := strings.Cut(f["webhook-signature"], "v1a,")
		sum, _ := base64.StdEncoding.DecodeString(v1a)
		if !ed25519.Verify(pair[32:], append([]byte("msg_1."+strconv.FormatInt(now, 10)+"."), body...), sum) {
			t.Fatal("v1a does not verify")
		}
	})
}

// The sender puts it all on the wire, once each.
func TestShapeIsSent(t *testing.T) {
	s := serve(t, answering(ok200))
	c := New(Options{Allow: loopback})
	t.Cleanup(c.Close)
	r := post(s.url("/"))
	r.Secrets, r.Schema = nil, "order/2"
	r.Shape = shape(t, Spec{
		Signature: Signature{Profile: Svix}, Secrets: [][]byte{secret}, Pairs: [][]byte{NewPair()},
		Headers: []Header{{"Authorization", "Bearer x"}, {"X-Empty", ""}},
	})
	want(t, c.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
	got := s.requests()[0]
	for name, value := range map[string]string{
		"svix-id": "msg_1", "Authorization": "Bearer x", "X-Empty": "", "Fairlane-Schema": "order/2", "webhook-id": "", "Idempotency-Key": `"msg_1"`,
	} {
		if got.get(name) != value {
			t.Errorf("%s: %q, want %q", name, got.get(name), value)
		}
	}
	h := http.Header{}
	for _, name := range []string{"id", "timestamp", "signature"} {
		h.Set("webhook-"+name, got.get("svix-"+name))
	}
	at, _ := strconv.ParseInt(got.get("svix-timestamp"), 10, 64)
	if err := verify(secret, "msg_1", at, got.get("svix-signature"), got.body); err != nil {
		t.Error(err)
	}
	r.Shape = shape(t, Spec{Secrets: [][]byte{secret}})
	r.Shape.signers[0].keys[0].until = 1 // all retired
	if o := c.Send(t.Context(), r); o.Reason != ReasonConfig || o.Result.Kind != engine.NotSent {
		t.Errorf("without a live key: %+v", o)
	}
}

func FuzzSignatureTemplate(f *testing.F) {
	f.Add("X", "{timestamp}.{body}", "t={timestamp},v1={signature}", ",")
	f.Fuzz(func(t *testing.T, header, content, value, separator string) {
		spec := Spec{Secrets: [][]byte{{1}}, Signature: Signature{Profile: Template, Header: header, Content: content, Value: value, Separator: separator}}
		s, err := spec.Shape()
		if err != nil {
			return
		}
		b := s.appendFields(nil, &Request{ID: "m", Payload: []byte("p")}, 1)
		if n := bytes.Count(b, []byte("\r\n")); n != 1 || bytes.ContainsRune(b, 0) {
			t.Fatalf("%q", b)
		}
	})
}
