package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// oldReceiver is an endpoint that verifies as it did before the move.
type oldReceiver struct {
	*httptest.Server
	got chan string // path, and "verified" or why not
}

func receive(t *testing.T, verify func(path string, h http.Header, body []byte) string) *oldReceiver {
	t.Helper()
	o := &oldReceiver{got: make(chan string, 100)}
	o.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		o.got <- r.URL.Path + " " + verify(r.URL.Path, r.Header, body)
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *oldReceiver) want(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-o.got:
		if got != want {
			t.Errorf("the receiver says %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("the receiver got nothing, want %q", want)
	}
}

// imported runs import and apply on a running service, with the receiver in the place of the sample's
// 127.0.0.1:9000, and checks that applying again changes nothing.
func imported(t *testing.T, s *started, o *oldReceiver, args ...string) (report string) {
	t.Helper()
	dir := t.TempDir()
	out, env := filepath.Join(dir, "x.yaml"), filepath.Join(dir, "x.env")
	report = ok(t, append(append([]string{"import"}, args...), "-o", out, "--secrets", env)...)
	for path, change := range map[string]*strings.Replacer{
		out: strings.NewReplacer("http://127.0.0.1:9000", o.URL),
		env: strings.NewReplacer("_Authorization=\n", "_Authorization=Bearer filled in\n"),
	} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(change.Replace(string(data))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	apply := []string{"apply", "-f", out, "--env", env, "--server", s.url}
	ok(t, apply...)
	if again := ok(t, apply...); !strings.HasPrefix(again, "0 created, 0 changed, 0 removed, ") {
		t.Errorf("again: %s", again)
	}
	return report
}

// What comes from Svix is applied, and a receiver that verifies svix-* with the same secret takes a delivery.
func TestImportSvix(t *testing.T) {
	t.Setenv(adminKeyVar, "import-test-0123456789")
	s := startServe(t, "--dev", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	verifier, err := standardwebhooks.NewWebhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	o := receive(t, func(_ string, h http.Header, body []byte) string {
		names := http.Header{} // the same scheme by other names
		for _, part := range []string{"Id", "Timestamp", "Signature"} {
			names.Set("Webhook-"+part, h.Get("Svix-"+part))
		}
		if err := verifier.Verify(body, names); err != nil {
			return err.Error()
		}
		return "verified " + h.Get("X-Team") + ", " + h.Get("Authorization")
	})
	report := imported(t, s, o, "svix", "../../internal/importer/testdata/svix")
	if !strings.Contains(report, "2 tenants and 3 subscriptions in ") || !strings.Contains(report, "endpoint ep_2srPick: transformation does not map") || strings.Contains(report, "MfKQ9r8") {
		t.Error(report)
	}
	post(t, s.url, "acme", "order.paid", `{"total":2}`)
	o.want(t, "/acme/orders verified orders, Bearer filled in")
}

// What comes from Convoy is applied, and receivers that verify its simple and its advanced signature take a delivery.
func TestImportConvoy(t *testing.T) {
	t.Setenv(adminKeyVar, "import-test-0123456789")
	s := startServe(t, "--dev", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	hexHMAC := func(secret, signed string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(signed))
		return hex.EncodeToString(mac.Sum(nil))
	}
	o := receive(t, func(path string, h http.Header, body []byte) string {
		header := h.Get("X-Convoy-Signature")
		if path == "/acme" {
			if header == hexHMAC("12345", string(body)) && h.Get("X-Api-Key") == "key-of-acme" {
				return "verified"
			}
			return "simple: " + header
		}
		parts := strings.Split(header, ",") // t=..,v1=..,v1=..: one for each secret in force
		at, ok := strings.CutPrefix(parts[0], "t=")
		if ok && len(parts) == 3 && parts[1] == "v1="+hexHMAC("newer secret", at+","+string(body)) && parts[2] == "v1="+hexHMAC("older secret", at+","+string(body)) {
			return "verified"
		}
		return "advanced: " + header
	})
	report := imported(t, s, o, "convoy", "../../internal/importer/testdata/convoy.json", "--json")
	var r struct {
		Subscriptions int
		Notes         []struct{ Object, Field string }
	}
	if err := json.Unmarshal([]byte(report), &r); err != nil || r.Subscriptions != 3 || len(r.Notes) != 11 {
		t.Errorf("%v %s", err, report)
	}
	post(t, s.url, "acme", "order.created", `{"total":2}`)
	o.want(t, "/acme verified")
	// imported paused: OAuth 2 does not map
	var subs []struct{ ID, Name string }
	if err := json.Unmarshal([]byte(ok(t, "sub", "ls", "--tenant", "01HV7Q9ADVANCED", "--json", "--server", s.url)), &subs); err != nil || len(subs) != 1 {
		t.Fatalf("%v %v", subs, err)
	}
	post(t, s.url, "01HV7Q9ADVANCED", "invoice.sent", `{"total":3}`)
	ok(t, "sub", "resume", subs[0].ID, "--server", s.url)
	o.want(t, "/beta verified")
}

// Files that exist are not written over.
func TestImportOverwritesNothing(t *testing.T) {
	there, fresh := writeFile(t, "there", "x"), filepath.Join(t.TempDir(), "fresh")
	for _, args := range [][]string{{"-o", there, "--secrets", fresh}, {"-o", fresh, "--secrets", there}} {
		code, _, errs := command(t, append([]string{"import", "svix", "../../internal/importer/testdata/svix.json"}, args...)...)
		if code != exitFailed || !strings.Contains(errs, "file exists") {
			t.Errorf("%v: %d %s", args, code, errs)
		}
		if _, err := os.Stat(fresh); err == nil {
			t.Errorf("%v: %s is left", args, fresh)
		}
	}
}
