package delivery

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"time"
)

// Options of New. The zero value of each field is its default.
type Options struct {
	Version string         // User-Agent is "Fairlane/" + Version; "" means "dev"
	Allow   []netip.Prefix // opens prefixes that the guard refuses; nil opens none
	NAT64   []netip.Prefix // see Guard

	ConnectTimeout   time.Duration  // name lookup and connect; 0 means 5s
	HandshakeTimeout time.Duration  // TLS; 0 means 5s
	IdleTimeout      time.Duration  // a connection unused for so long is closed; 0 means 4s, below the 5s of common servers
	MaxConnsPerHost  int            // connections to one scheme, host and port, in use or idle; 0 means 1024
	MaxConns         int            // connections in all; 0 means three quarters of the process's descriptors: the rest is for producers and the log
	MaxIdle          int            // idle connections in all; 0 means 4096
	RootCAs          *x509.CertPool // nil means the system's
	Resolver         *net.Resolver  // nil means Go's own, by /etc/resolv.conf

	// Proxy, if set, carries every connection; see Proxy for what it must do.
	Proxy *Proxy
	// ClientCertificate, if set, is asked for the platform's own certificate, not nil, at every
	// handshake in which an endpoint wants one and the subscription has none of its own.
	ClientCertificate func() *tls.Certificate

	// Now is the wall clock, for signatures and dates of Retry-After; nil means time.Now.
	Now func() time.Time
}

// defaultTimeout bounds a Request that states none.
const defaultTimeout = 15 * time.Second

func (o Options) withDefaults() Options {
	if o.Version == "" {
		o.Version = "dev"
	}
	orDuration(&o.ConnectTimeout, 5*time.Second)
	orDuration(&o.HandshakeTimeout, 5*time.Second)
	orDuration(&o.IdleTimeout, 4*time.Second)
	orInt(&o.MaxConnsPerHost, 1024)
	orInt(&o.MaxIdle, 4096)
	orInt(&o.MaxConns, descriptors()/4*3)
	orInt(&o.MaxConns, 1<<30)
	if o.Resolver == nil {
		// Go's own resolver waits in the poller; the system's holds a thread
		// for each name that is not answered.
		o.Resolver = &net.Resolver{PreferGo: true}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func orDuration(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

func orInt(n *int, def int) {
	if *n <= 0 {
		*n = def
	}
}
