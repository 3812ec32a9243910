package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/config"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// pemPair is a self-signed certificate of that serial number for this machine, and its key.
func pemPair(t testing.TB, serial int64) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// A renewed certificate is used without a restart; a half-written or broken one is not.
func TestAChangedCertificateIsUsedByItself(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	at := time.Now().Add(-time.Hour)
	put := func(cert, key []byte) {
		t.Helper()
		at = at.Add(time.Second) // file systems' clocks are coarse
		for name, data := range map[string][]byte{certFile: cert, keyFile: key} {
			if data == nil {
				continue
			}
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(name, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, firstKey := pemPair(t, 1)
	second, secondKey := pemPair(t, 2)
	put(first, firstKey)
	logs := &buffer{}
	c, err := openCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	serial := func() int64 {
		now = now.Add(lookEvery)
		return c.get(now).Leaf.SerialNumber.Int64()
	}
	if n := serial(); n != 1 {
		t.Fatalf("serial %d", n)
	}
	put(second, nil) // the key comes later
	if n := serial(); n != 1 || !strings.Contains(logs.String(), "the one of before stays") {
		t.Errorf("half-written: serial %d, %s", n, logs)
	}
	serial()
	if n := strings.Count(logs.String(), "the one of before stays"); n != 1 {
		t.Errorf("said %d times", n)
	}
	put(nil, secondKey)
	if n := serial(); n != 2 {
		t.Errorf("renewed: serial %d", n)
	}
	put([]byte("SECRET nonsense"), []byte("SECRET nonsense"))
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	if n := serial(); n != 2 || strings.Contains(logs.String(), "SECRET") {
		t.Errorf("broken: serial %d, %s", n, logs)
	}
	put(first, firstKey)
	if n := c.get(now).Leaf.SerialNumber.Int64(); n != 2 {
		t.Errorf("looked twice in a second: serial %d", n)
	}
	if n := serial(); n != 1 {
		t.Errorf("mended: serial %d", n)
	}
	if _, err := openCertificate(filepath.Join(dir, "none"), keyFile, nil); err == nil {
		t.Error("a missing certificate at start is no error")
	}
}

// The API over TLS, and mutual TLS towards endpoints: the platform's certificate, or the subscription's.
func TestTLSOnBothSides(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := pemPair(t, 11)
	own, ownKey := pemPair(t, 22)
	theirs, theirsKey := pemPair(t, 33)
	shown := make(chan int64, 10)
	endpoint := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		shown <- r.TLS.PeerCertificates[0].SerialNumber.Int64()
	}))
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	endpoint.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{pair}}
	endpoint.StartTLS()
	t.Cleanup(endpoint.Close)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	s := start(t, "", func(c *Config) {
		c.Cert, c.Key = write("cert.pem", cert), write("key.pem", key)
		c.roots = roots
		c.ClientCert, c.ClientKey = write("own.pem", own), write("own-key.pem", ownKey)
	})
	s.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	if !strings.HasPrefix(s.URL(), "https://") {
		t.Fatal(s.URL())
	}
	s.tenant("acme")
	sub := s.subscribe("acme", endpoint.URL, "")
	got := func() int64 {
		t.Helper()
		s.must(202, s.post("acme", "x"))
		select {
		case n := <-shown:
			return n
		case <-time.After(20 * time.Second):
			t.Fatalf("no delivery: %s", s.do("GET", "/v1/subscriptions/"+sub.ID+"/deliveries", nil).body)
			return 0
		}
	}
	if n := got(); n != 22 {
		t.Errorf("certificate %d, want the platform's", n)
	}
	quote := func(b []byte) string { return strings.ReplaceAll(string(b), "\n", `\n`) }
	a := s.must(200, s.do("PATCH", "/v1/subscriptions/"+sub.ID, strings.NewReader(`{"client_certificate":{"certificate":"`+quote(theirs)+`","key":"`+quote(theirsKey)+`"}}`)))
	if !strings.Contains(string(a.body), `"client_certificate":{"sha256":"`) || strings.Contains(string(a.body), "PRIVATE") {
		t.Errorf("shown as %s", a.body)
	}
	if n := got(); n != 33 {
		t.Errorf("certificate %d, want the subscription's, on a connection of its own", n)
	}
	s.must(200, s.do("PATCH", "/v1/subscriptions/"+sub.ID, strings.NewReader(`{"client_certificate":null}`)))
	if n := got(); n != 22 {
		t.Errorf("certificate %d, want the platform's again", n)
	}
}

// A reload is all or nothing, refills nothing, and names what it cannot do.
func TestReloadChangesWhatRuns(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"paid","tier":"pro"}`)))
	url, got := endpoint(t, 200)
	s.subscribe("acme", url, "")
	s.must(202, s.post("acme", "1"))
	next(t, got)
	with := func(edit func(*Config)) ([]string, error) {
		c := s.config
		c.Tiers = map[string]fanout.Tier{"default": {Name: "default"}, "pro": {Name: "pro"}}
		edit(&c)
		return s.Reload(c)
	}
	for what, edit := range map[string]func(*Config){
		"a tier in use is gone": func(c *Config) { delete(c.Tiers, "pro"); c.Allow = nil },
		"a rate is nonsense":    func(c *Config) { c.Tiers["default"] = fanout.Tier{Rate: "x"}; c.Allow = nil },
		"a tenant's own rate":   func(c *Config) { c.Tiers["default"] = fanout.Tier{Inbound: fanout.Inbound{Rate: "x"}}; c.Allow = nil },
		"a burst does not fit":  func(c *Config) { c.Tiers["default"] = fanout.Tier{Rate: "1/s", Burst: 1 << 40}; c.Allow = nil },
	} {
		if _, err := with(edit); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.must(202, s.post("acme", "2"))
	next(t, got) // still unlimited, still allowed
	s.must(422, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"x","tier":"new"}`)))

	restart, err := with(func(c *Config) {
		c.Tiers["default"] = fanout.Tier{Name: "default", Rate: "0"}
		c.Tiers["new"] = fanout.Tier{Name: "new"}
		c.Engine.Slots, c.Listen, c.MaxBytes = 7, "127.0.0.1:1", 1<<40
	})
	if err != nil || !slices.Equal(restart, []string{"server.listen", "data.max_bytes"}) {
		t.Errorf("%q, %v", restart, err)
	}
	s.must(201, s.do("POST", "/v1/tenants", strings.NewReader(`{"id":"x","tier":"new"}`)))
	if n := s.Fanout().Stats().Slots; n != 7 {
		t.Errorf("%d slots", n)
	}
	s.must(202, s.post("acme", "3"))
	until(t, "parked by the new rate", func() bool { return s.account().Parked == 1 })
	if _, err := with(func(c *Config) { c.Allow, c.Tiers["new"] = nil, fanout.Tier{} }); err != nil { // the rate is back, the address is not
		t.Fatal(err)
	}
	s.must(422, s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"acme","url":"http://127.0.0.1:1/","topics":["a"]}`)))
	until(t, "refused by the guard", func() bool {
		return regexp.MustCompile(`fairlane_unsent_total{reason="guard"} [1-9]`).Match(s.do("GET", "/metrics", nil).body) // it is tried again
	})
	if _, err := with(func(c *Config) {
		c.Allow, c.Tiers["new"] = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, fanout.Tier{}
	}); err != nil {
		t.Fatal(err)
	}
	if d := next(t, got); string(d.body) != "3" {
		t.Errorf("got %q", d.body)
	}
}

// An address behind the NAT64 of the file is judged by the IPv4 address in it, also after a reload.
func TestTheFilesNAT64IsInForce(t *testing.T) {
	file, err := config.Parse("f", []byte(`delivery: {network: {nat64: ["2a00:64::/96"]}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, "", func(c *Config) { c.NAT64 = FromFile(file).NAT64 })
	s.tenant("acme")
	ask := func() {
		t.Helper()
		for host, status := range map[string]int{"[2a00:64::a00:1]": 422, "[2a00:64::808:808]": 201, "[2a00:65::a00:1]": 201} {
			s.must(status, s.do("POST", "/v1/subscriptions", strings.NewReader(`{"tenant":"acme","url":"http://`+host+`/","topics":["a"]}`)))
		}
	}
	ask()
	changed := s.config
	changed.Allow, changed.NAT64 = nil, nil
	if restart, err := s.Reload(changed); err != nil || !slices.Equal(restart, []string{"delivery.network.nat64"}) {
		t.Errorf("%q, %v", restart, err)
	}
	ask()
}

// Every setting of the file is either changed by a reload or named as one that is not.
func TestEverySettingIsReloadedOrNamed(t *testing.T) {
	live := []string{"retention.dead", "capacity.", "delivery.timeout", "delivery.retry.", "delivery.budget.", "delivery.breaker.", "delivery.network.allow", "tiers.", "envelopes."}
	var out strings.Builder
	c, err := config.Parse("f", []byte(`
server: {tls: {cert: c, key: k}, admin_key: "${K}"}
data: {secret_key: "${S}", previous_secret_keys: ["${S}"]}
delivery: {network: {proxy: "http://p:1", proxy_user: "${U}"}, tls: {cert: c, key: k}}
envelopes: {e: {schema: "1", template: "{payload}"}}`), func(name string) (string, bool) {
		return map[string]string{"K": "0123456789abcdef", "S": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "U": "a:b"}[name], true
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	var path []string
	for line := range strings.Lines(out.String()) {
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		path = append(path[:depth], key)
		if name := strings.Join(path, "."); value != "" {
			named := slices.ContainsFunc(fixed, func(f struct {
				name string
				same func(a, b *Config) bool
			}) bool {
				return strings.HasPrefix(name, f.name)
			})
			changes := slices.ContainsFunc(live, func(l string) bool { return strings.HasPrefix(name, l) })
			if named == changes {
				t.Errorf("%s: named %v, changes %v", name, named, changes)
			}
		}
	}
}
