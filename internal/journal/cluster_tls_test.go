package journal

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// authority signs certificates; its own is in a PEM file.
type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.file, _, a.cert, a.key = a.issue(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: name}})
	return a
}

// issue makes a certificate, signed by the authority, or by itself while there is none, and returns its files.
func (a *authority) issue(c *x509.Certificate) (certFile, keyFile string, made *x509.Certificate, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if made, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.dir, c.Subject.CommonName+".pem"), filepath.Join(a.dir, c.Subject.CommonName+".key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return certFile, keyFile, made, key
}

// leaf is issue for a server on this machine, or for one of its clients.
func (a *authority) leaf(name string) (certFile, keyFile string) {
	certFile, keyFile, _, _ = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return certFile, keyFile
}

// startNATS runs a server with JetStream that asks its clients for certificates of the authority, and returns its address.
func startNATS(t *testing.T, a *authority, edit func(*server.Options)) string {
	t.Helper()
	certFile, keyFile := a.leaf("server")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	o := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8 << 20,
		TLSVerify: true, TLSTimeout: 30, AuthTimeout: 60,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert},
	}
	edit(o)
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	return s.Addr().String()
}

// operated makes the server one of an operator, with an account for the journal, and returns its user's credentials file.
func operated(t *testing.T, o *server.Options) (credentials string) {
	t.Helper()
	pair := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		k, err := create()
		if err != nil {
			t.Fatal(err)
		}
		public, err := k.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return k, public
	}
	signed := func(c jwt.Claims, by nkeys.KeyPair) string {
		text, err := c.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	operator, operatorKey := pair(nkeys.CreateOperator)
	account, accountKey := pair(nkeys.CreateAccount)
	_, systemKey := pair(nkeys.CreateAccount)
	user, userKey := pair(nkeys.CreateUser)
	claims := jwt.NewAccountClaims(accountKey)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
	resolver := &server.MemAccResolver{}
	for key, text := range map[string]string{accountKey: signed(claims, operator), systemKey: signed(jwt.NewAccountClaims(systemKey), operator)} {
		if err := resolver.Store(key, text); err != nil {
			t.Fatal(err)
		}
	}
	trusted, err := jwt.DecodeOperatorClaims(signed(jwt.NewOperatorClaims(operatorKey), operator))
	if err != nil {
		t.Fatal(err)
	}
	o.TrustedOperators, o.AccountResolver, o.SystemAccount = []*jwt.OperatorClaims{trusted}, resolver, systemKey
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(signed(jwt.NewUserClaims(userKey), account), seed)
	if err != nil {
		t.Fatal(err)
	}
	credentials = filepath.Join(t.TempDir(), "user.creds")
	if err := os.WriteFile(credentials, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return credentials
}

// A server that asks for a certificate and for a name is reached with both, by a password or by a credentials file, and
// with nothing less; what is wrong is said.
func TestClusterByTLS(t *testing.T) {
	a, stranger := newAuthority(t, "authority"), newAuthority(t, "stranger")
	cert, key := a.leaf("client")
	strangeCert, strangeKey := stranger.leaf("client")
	var credentials string
	servers := map[string]string{
		"password":    startNATS(t, a, func(o *server.Options) { o.Username, o.Password = "fairlane", "secret" }),
		"credentials": startNATS(t, a, func(o *server.Options) { credentials = operated(t, o) }),
	}
	options := func(with string, edit func(*Cluster)) Options {
		c := &Cluster{URLs: []string{"tls://" + servers[with]}, CA: a.file, Cert: cert, Key: key, Replicas: 1, Few: true}
		if c.User, c.Password = "fairlane", "secret"; with == "credentials" {
			c.User, c.Password, c.Credentials = "", "", credentials
		}
		if edit != nil {
			edit(c)
		}
		return Options{Dir: t.TempDir(), MaxBytes: leastMaxBytes, Cluster: c, tune: tuning{patience: 20 * time.Second, lease: 500 * time.Millisecond}}
	}
	for with := range servers {
		j := open(t, options(with, nil))
		want := mustAppend(t, j, trigger(1))
		closeJournal(t, j)
		j = open(t, options(with, nil))
		if got := readAll(t, j, 0); len(got) != 1 || got[0].ID != want.ID {
			t.Errorf("%s: %d triggers", with, len(got))
		}
		closeJournal(t, j)
	}
	for _, c := range []struct {
		what, with string
		edit       func(*Cluster)
		says       string
	}{
		{"another authority", "password", func(c *Cluster) { c.CA = stranger.file }, "certificate signed by unknown authority"},
		{"the system's authorities", "password", func(c *Cluster) { c.CA = "" }, "certificate signed by unknown authority"},
		{"no certificate", "password", func(c *Cluster) { c.Cert, c.Key = "", "" }, "tls"},                            // TLS 1.3: the client may be through
		{"a stranger's certificate", "password", func(c *Cluster) { c.Cert, c.Key = strangeCert, strangeKey }, "tls"}, // before the server says why not
		{"another password", "password", func(c *Cluster) { c.Password = "guess" }, "Authorization Violation"},
		{"no credentials", "credentials", func(c *Cluster) { c.Credentials = "" }, "Authorization Violation"},
		{"a file that is not there", "credentials", func(c *Cluster) { c.Credentials = filepath.Join(a.dir, "none.creds") }, "none.creds"},
		{"a file without a certificate", "password", func(c *Cluster) { c.CA = key }, "holds no certificate"},
		{"a key of another", "password", func(c *Cluster) { c.Key = strangeKey }, "does not match"},
	} {
		j, err := Open(t.Context(), options(c.with, c.edit))
		if err == nil {
			closeJournal(t, j)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.what, err, c.says)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "guess")) {
			t.Errorf("%s: a password is in %q", c.what, err)
		}
	}
}
