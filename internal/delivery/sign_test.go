package delivery

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"
)

func TestSignatureIsTheStandardsVector(t *testing.T) {
	key, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := AppendSignature(nil, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, []byte(`{"test": 2432232314}`), [][]byte{key})
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// awkwardBodies are what serialisers like to change.
var awkwardBodies = [][]byte{
	nil,
	[]byte("{\r\n  \"a\": 1\r\n}\r\n"),
	[]byte(`{"a":1.0}`),
	[]byte("a=1&b=%20+<>&"),
	[]byte("\xef\xbb\xbf{\"bom\":true}"),
	{0, 0xff, 0xfe, 0x80, '\n'},
	[]byte("caf\u00e9 cafe\u0301 \u2028 \U0001F60A \\ud83d\\ude0a"),
	bytes.Repeat([]byte("0123456789"), 500_000),
}

func TestSignatureVerifiesWithTheOfficialLibrary(t *testing.T) {
	for i, body := range awkwardBodies {
		now := time.Now().Unix()
		signature := AppendSignature(nil, "msg_1", now, body, [][]byte{secret})
		if err := verify(secret, "msg_1", now, string(signature), body); err != nil {
			t.Errorf("body %d: %v", i, err)
		}
	}
}

func verify(key []byte, id string, at int64, signature string, body []byte) error {
	w, err := standardwebhooks.NewWebhookRaw(key)
	if err != nil {
		return err
	}
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(at, 10))
	h.Set("webhook-signature", signature)
	return w.Verify(body, h)
}

func TestSignatureOfAnySecretsBodyAndIDVerifies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[A-Za-z0-9_\-]{1,256}`).Draw(t, "id")
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		keys := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), MinSecret, MaxSecret), 1, 4).Draw(t, "keys")
		now := time.Now().Unix()
		signature := string(AppendSignature([]byte{}, id, now, body, keys))
		if n := len(strings.Fields(signature)); n != len(keys) {
			t.Fatalf("%d signatures for %d keys: %s", n, len(keys), signature)
		}
		for _, key := range keys {
			if err := verify(key, id, now, signature, body); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestEverySecretSignsDuringRotation(t *testing.T) {
	old, fresh := []byte("old old old old old old old!"), []byte("new new new new new new new!")
	now := time.Now().Unix()
	signature := string(AppendSignature(nil, "msg_1", now, []byte("x"), [][]byte{fresh, old}))
	for _, key := range [][]byte{old, fresh} {
		if err := verify(key, "msg_1", now, signature, []byte("x")); err != nil {
			t.Errorf("receiver with %q: %v", key, err)
		}
	}
	if err := verify(secret, "msg_1", now, signature, []byte("x")); err == nil {
		t.Error("a receiver with another secret verified it")
	}
}

func TestSignatureDoesNotCopyTheBody(t *testing.T) {
	small, big := make([]byte, 1<<10), make([]byte, 1<<20)
	dst := make([]byte, 0, 256)
	allocated := func(body []byte) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 20 {
			AppendSignature(dst, "msg_1", 1, body, [][]byte{secret})
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / 20
	}
	allocated(small)
	if s, b := allocated(small), allocated(big); b > s+1<<10 {
		t.Errorf("1 KiB allocates %d bytes, 1 MiB %d", s, b)
	}
}

func TestSecretsAreTakenInOneSpellingOnly(t *testing.T) {
	key := make([]byte, 32)
	rand.Read(key)
	if got, err := ParseSecret(FormatSecret(key)); err != nil || !bytes.Equal(got, key) {
		t.Errorf("round trip: %x, %v; want %x", got, err, key)
	}
	for _, n := range []int{MinSecret, MaxSecret} {
		if _, err := ParseSecret(FormatSecret(make([]byte, n))); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	good := FormatSecret(key)
	for name, s := range map[string]string{
		"empty":           "",
		"prefix alone":    "whsec_",
		"no prefix":       strings.TrimPrefix(good, "whsec_"),
		"other prefix":    "hwsec_" + strings.TrimPrefix(good, "whsec_"),
		"public key":      "whpk_" + strings.TrimPrefix(good, "whsec_"),
		"key pair":        "whsk_" + strings.TrimPrefix(good, "whsec_"),
		"too short":       FormatSecret(make([]byte, MinSecret-1)),
		"too long":        FormatSecret(make([]byte, MaxSecret+1)),
		"line feed":       good[:20] + "\n" + good[20:],
		"unpadded":        strings.TrimRight(good, "="),
		"url alphabet":    "whsec_" + strings.Repeat("-_", 16),
		"trailing blank":  good + " ",
		"not base64":      "whsec_" + strings.Repeat("*", 40),
		"spare bits used": good[:len(good)-2] + "B=",
	} {
		if got, err := ParseSecret(s); err == nil {
			t.Errorf("%s: %q gave %x", name, s, got)
		}
	}
}

// Field case 58.
func TestIDsThatCouldMoveBytesBetweenSignedPartsAreRefused(t *testing.T) {
	for _, id := range []string{"", "a.1674087231.{}", "x\r\nwebhook-id: y", "a b", "\u00e4", `a"b`, `a\b`, "a,b", strings.Repeat("a", maxID+1)} {
		if validID(id) {
			t.Errorf("%q taken", id)
		}
	}
	for _, id := range []string{"a", "msg_p5jXN8AQM9LWM0D4loKWxJek", "0-Z_9", strings.Repeat("a", maxID)} {
		if !validID(id) {
			t.Errorf("%q refused", id)
		}
	}
}
