package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const secretPath = "/services/T0/B0/SECRETPATH?token=SECRETQ"

// Field case 62.
func TestTheURLAndThePayloadAppearNowhere(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, nil)
	s.tenant("acme")
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(500)
		fmt.Fprintf(w, "cannot do http://%s%s", r.Host, r.URL)
	}))
	t.Cleanup(echo.Close)
	abort := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(abort.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	l.Close()
	hosts := []string{
		echo.URL,                          // an answer that repeats the URL
		abort.URL,                         // no answer
		"http://" + closed,                // connection refused
		"https" + echo.URL[len("http"):],  // no TLS
		"http://nowhere.invalid",          // no such name
		"http://localtest.invalid:8443/x", // another
	}
	ids := make([]string, len(hosts))
	for i, h := range hosts {
		ids[i] = s.subscribe("acme", h+secretPath+"#f", "").ID
	}
	s.must(202, s.post("acme", "SECRETBODY"))
	until(t, "every endpoint failed", func() bool {
		for _, id := range ids {
			var p page[deliveryView]
			s.must(200, s.do("GET", "/v1/subscriptions/"+id+"/deliveries", nil)).into(t, &p)
			if len(p.Items) == 0 {
				return false
			}
		}
		return true
	})
	// What others than the admin of subscriptions may see: ledger, lanes, account, metrics, problems, log.
	var seen strings.Builder
	for _, id := range ids {
		seen.Write(s.do("GET", "/v1/subscriptions/"+id+"/deliveries", nil).body)
		seen.Write(s.do("GET", "/v1/lanes/"+id, nil).body)
	}
	for _, path := range []string{"/v1/lanes", "/v1/account", "/metrics", "/readyz"} {
		seen.Write(s.do("GET", path, nil).body)
	}
	seen.Write(s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"acme","topics":["a"],"url":"https://user:SECRETPW@host.test`+secretPath+`"}`)).body)
	seen.Write(s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"acme","topics":["a"],"url":"https://ho st.test`+secretPath+`"}`)).body)
	seen.Write(s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"acme","topics":["a"],"url":"http://10.0.0.1`+secretPath+`"}`)).body)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen.WriteString(s.logs.String())
	for _, secret := range []string{"SECRETPATH", "SECRETQ", "SECRETPW", "SECRETBODY", testKey} {
		if i := strings.Index(seen.String(), secret); i >= 0 {
			t.Errorf("%s is shown: ...%s", secret, seen.String()[max(0, i-200):i+len(secret)])
		}
	}
	if !strings.Contains(seen.String(), "http://nowhere.invalid:80") {
		t.Error("the host is not shown")
	}
	inFiles(t, dir, "SECRETPATH")
}

// inFiles fails if text stands in a file below dir.
func inFiles(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		if strings.Contains(string(b), text) {
			t.Errorf("%s stands in %s", text, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
