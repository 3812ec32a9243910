package delivery

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// authority signs the certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, pool: x509.NewCertPool()}
	a.cert, _ = x509.ParseCertificate(der)
	a.pool.AddCert(a.cert)
	return a
}

// leaf returns a server's certificate for names and addresses, changed by edit.
func (a *authority) leaf(t testing.TB, names string, edit func(*x509.Certificate)) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for name := range strings.FieldsSeq(names) {
		if ip := net.ParseIP(name); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, name)
		}
	}
	if edit != nil {
		edit(tmpl)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Field case 74.
func TestCertificateVerdictsAreNamedAndNothingIsSent(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	past := func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(time.Minute) }
	future := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	}
	commonName := func(c *x509.Certificate) { c.Subject.CommonName = "h.test" }
	senders(t, func(t *testing.T, open func(Options) Sender) {
		for name, c := range map[string]struct {
			host   string
			cfg    *tls.Config
			detail string // "" is delivered
		}{
			"good":               {"h.test", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "h.test", nil)}}, ""},
			"trailing dot":       {"h.test.", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "h.test", nil)}}, ""},
			"address":            {"127.0.0.1", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", nil)}}, ""},
			"address not in it":  {"127.0.0.1", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "h.test", nil)}}, "another name: h.test"},
			"expired":            {"h.test", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "h.test", past)}}, "valid only from"},
			"not yet valid":      {"h.test", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "h.test", future)}}, "valid only from"},
			"other name":         {"h.test", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "a.test b.test c.test d.test e.test", nil)}}, "another name: a.test b.test c.test d.test ..."},
			"common name alone":  {"h.test", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "", commonName)}}, "another name: none"},
			"unknown authority":  {"h.test", &tls.Config{Certificates: []tls.Certificate{other.leaf(t, "h.test", nil)}}, "unknown authority"},
			"no intermediate":    {"h.test", &tls.Config{Certificates: []tls.Certificate{ca.intermediate(t).leaf(t, "h.test", nil)}}, "unknown authority"},
			"no common version":  {"h.test", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "h.test", nil)}, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}, "refused: protocol version"},
			"client certificate": {"h.test", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "h.test", nil)}, ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}, "refused: "},
		} {
			s := serveOn(t, "127.0.0.1:0", c.cfg, answering(ok200))
			_, port, _ := net.SplitHostPort(s.addr())
			dns := resolver(t, hosts([]string{"127.0.0.1"}, nil))
			sender := open(Options{Resolver: dns.Resolver, RootCAs: ca.pool})
			o := sender.Send(t.Context(), post("https://"+c.host+":"+port+"/"))
			if c.detail == "" {
				want(t, o, engine.OK, 200, ReasonStatus)
				continue
			}
			kind := engine.Later // a verdict stays until somebody acts
			if strings.HasPrefix(c.detail, "refused") {
				kind = engine.Failed
			}
			want(t, o, kind, 0, ReasonTLS)
			if !strings.Contains(o.Detail, c.detail) || o.Sent || len(s.requests()) != 0 {
				t.Errorf("%s: %+v, want %q", name, o, c.detail)
			}
		}
	})
}

// intermediate is an authority that a signs, and that no receiver's chain names.
func (a *authority) intermediate(t testing.TB) *authority {
	c := a.leaf(t, "", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.Subject = true, true, x509.KeyUsageCertSign, pkix.Name{CommonName: "intermediate"}
	})
	cert, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: c.PrivateKey.(*ecdsa.PrivateKey)}
}

// Field case 74. A broken handshake is no verdict: it is retried as any failure, and the next one may do.
func TestAResetHandshakeIsRetriedAsUsual(t *testing.T) {
	ca := newAuthority(t)
	cfg := &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", nil)}}
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, func(p *peer) {
			if p.n == 0 {
				p.br.Peek(1)
				p.Conn.(*net.TCPConn).SetLinger(0)
				return
			}
			p.Conn = tls.Server(p.Conn, cfg)
			p.br = newReader(p.Conn)
			answering(ok200)(p)
		})
		sender := open(Options{RootCAs: ca.pool})
		r := post("https://" + s.addr() + "/")
		want(t, sender.Send(t.Context(), r), engine.Failed, 0, ReasonTLS)
		want(t, sender.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
	})
}

// Field case 74.
func TestRenewedCertificateWorksWithoutRestart(t *testing.T) {
	ca := newAuthority(t)
	expired := ca.leaf(t, "127.0.0.1", func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(time.Minute) })
	renewed := ca.leaf(t, "127.0.0.1", nil)
	senders(t, func(t *testing.T, open func(Options) Sender) {
		var mu sync.Mutex
		use := &expired
		s := serveOn(t, "127.0.0.1:0", &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if h.ServerName != "" {
				t.Errorf("server name %q sent for an address", h.ServerName)
			}
			mu.Lock()
			defer mu.Unlock()
			return use, nil
		}}, answering(ok200))
		sender := open(Options{RootCAs: ca.pool})
		r := post("https://" + s.addr() + "/")
		want(t, sender.Send(t.Context(), r), engine.Later, 0, ReasonTLS)
		mu.Lock()
		use = &renewed
		mu.Unlock()
		for range 5 {
			want(t, sender.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
		}
		if n := s.accepted(); n != 2 {
			t.Errorf("%d connections, want one refused and one reused", n)
		}
	})
}

func TestHandshakeThatDoesNotComeIsATLSFailure(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		for name, c := range map[string]struct {
			handle func(*peer)
			detail string
		}{
			"silent":  {(*peer).hang, "handshake timed out"},
			"not TLS": {func(p *peer) { p.br.Peek(1); p.say("HTTP/1.1 400 Bad Request\r\n\r\n") }, "answer is not TLS"},
			"closes":  {func(p *peer) { p.br.Peek(1) }, "handshake failed"},
		} {
			s := serve(t, c.handle)
			var o Options
			if name == "silent" {
				o.HandshakeTimeout = 50 * time.Millisecond
			}
			sender := open(o)
			got := sender.Send(t.Context(), post("https://"+s.addr()+"/"))
			want(t, got, engine.Failed, 0, ReasonTLS)
			if got.Detail != c.detail || got.Sent {
				t.Errorf("%s: %+v, want %q", name, got, c.detail)
			}
		}
	})
}

func TestBodiesOfAllSizesPassThroughTLS(t *testing.T) {
	ca := newAuthority(t)
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serveOn(t, "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", nil)}}, answering(ok200))
		sender := open(Options{RootCAs: ca.pool})
		for _, body := range awkwardBodies {
			r := post("https://" + s.addr() + "/")
			r.Payload = body
			want(t, sender.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
			got := s.requests()
			if string(got[len(got)-1].body) != string(body) {
				t.Errorf("%d bytes sent, %d arrived", len(body), len(got[len(got)-1].body))
			}
		}
		if n := s.accepted(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}
