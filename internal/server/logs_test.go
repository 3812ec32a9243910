package server

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// Field case 62. A loaded run with a secret in everything that can hold one, and with every kind of
// failure: nothing that is logged, at any level, holds any of them, nor a payload.
func TestNothingLoggedHoldsASecretOrAPayload(t *testing.T) {
	logs := &buffer{}
	edit := func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}))
		c.AdminKey = testKey
		c.SecretKey = []byte("SECRETATREST-32-bytes-long-key!!")
		c.ProxyUser = "SECRETUSER:SECRETPASS"
		c.Profile.Timeout = 200e6
	}
	dir := t.TempDir()
	s := start(t, dir, edit)
	s.tenant("acme")
	hosts := failingEndpoints(t)
	_, pemKey := pemPair(t, 1)
	cert, key := pemPair(t, 2)
	quote := func(b []byte) string { return strings.ReplaceAll(string(b), "\n", `\n`) }
	const private = `,"secrets":["text:SECRETSIGN-first","hex:5345435245545349474e"],"headers":{"Authorization":"Bearer SECRETHEADER","X-Key":"SECRETVALUE"}`
	var ids []string
	for i, h := range hosts {
		more := private + `,"envelope":"cloudevents","rate":"1000/s"`
		if i%2 == 0 {
			more = private + `,"signature":{"profile":"template","header":"X-Sig","separator":","},"client_certificate":{"certificate":"` + quote(cert) + `","key":"` + quote(key) + `"}`
		}
		ids = append(ids, s.subscribe("acme", h+"/SECRETPATH?token=SECRETQUERY#SECRETFRAGMENT", more).ID)
	}
	var posts sync.WaitGroup
	for i := range 8 {
		posts.Go(func() {
			for n := range 25 {
				s.post("acme", fmt.Sprintf(`{"n":%d,"x":"SECRETBODY"}`, n), fmt.Sprintf("Idempotency-Key: SECRETKEY-%d-%d", i, n))
			}
		})
	}
	posts.Wait()
	until(t, "every endpoint was tried", func() bool {
		for _, l := range s.Fanout().Lanes() {
			if l.Counters.Parked+l.Counters.Delivered+l.Counters.Dead < 200 {
				return false
			}
		}
		return true
	})
	for _, bad := range []string{
		`{"tenant":"acme","topics":["a"],"url":"https://u:SECRETPASS@h.test/SECRETPATH"}`,
		`{"tenant":"acme","topics":["a"],"url":"http://127.0.0.1/","secrets":["whsec_SECRETSIGN"]}`,
		`{"tenant":"acme","topics":["a"],"url":"http://127.0.0.1/","headers":{"X":"SECRETVALUE\r\n"}}`,
		`{"tenant":"acme","topics":["a"],"url":"http://127.0.0.1/","client_certificate":{"certificate":"` + quote(cert) + `","key":"` + quote(pemKey) + `"}}`,
		`{"SECRETBODY`,
	} {
		s.do("POST", "/v1/subscriptions", strings.NewReader(bad))
	}
	s.do("GET", "/v1/tenants", nil, "Authorization: Bearer SECRETWRONGKEY")
	s.do("POST", "/v1/subscriptions/"+ids[1]+"/rotate", strings.NewReader(`{}`))
	c := s.config
	c.ProxyUser, c.SecretKey, c.Tiers = "SECRETUSER:SECRETOTHER", []byte("SECRETATREST"), map[string]fanout.Tier{"none": {Rate: "SECRETRATE"}}
	if _, err := s.Reload(c); err == nil {
		t.Error("a wrong reload was taken")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := start(t, dir, func(c *Config) { // with another key: all is encrypted anew
		edit(c)
		c.SecretKey, c.PreviousKeys = []byte("SECRETOFTODAY-32-bytes-long-key!"), [][]byte{[]byte("SECRETATREST-32-bytes-long-key!!")}
	})
	until(t, "the secrets moved", func() bool { return strings.Contains(logs.String(), "no secret needs a previous key any more") })
	if err := again.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := logs.String()
	hidden := []string{"SECRET", testKey, "PRIVATE KEY", base64.StdEncoding.EncodeToString([]byte("SECRETSIGN-first")),
		base64.StdEncoding.EncodeToString([]byte("SECRETUSER:SECRETPASS")), strings.Split(string(key), "\n")[1]}
	for _, h := range hidden {
		if i := strings.Index(text, h); i >= 0 {
			t.Errorf("logged: ...%s", text[max(0, i-300):min(len(text), i+60)])
		}
	}
	if !strings.Contains(text, "level=") {
		t.Error("nothing was logged at all")
	}
}

// failingEndpoints are bases of URLs that fail in every way, and one that does not.
func failingEndpoints(t *testing.T) []string {
	t.Helper()
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	stop := make(chan struct{})
	echo := serve(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Location", "http://127.0.0.1"+r.URL.String())
		w.WriteHeader([]int{500, 302, 400, 429, 404}[len(body)%5])
		fmt.Fprint(w, r.URL, r.Header, string(body))
	})
	hang := serve(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(stop) })
	abort := serve(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	return []string{
		echo, hang, abort, secure.URL, "https" + strings.TrimPrefix(echo, "http"), "http://127.0.0.1:1", "http://nowhere.invalid",
		serve(func(http.ResponseWriter, *http.Request) {}),
	}
}
