package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a pair of PEM files, read again when they change: a renewal needs no restart and no
// signal. While the files do not fit together, or cannot be read, the last good pair stays in use.
// Safe for concurrent use.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	looked  time.Time
	seen    [2]stamp // of the files that were read last, good or not
	current *tls.Certificate
}

// stamp tells one content of a file from the next.
type stamp struct {
	modified time.Time
	size     int64
}

// lookEvery bounds how often the files are looked at.
const lookEvery = time.Second

// openCertificate reads the pair for the first time: an error then is one of the start.
func openCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	c.seen, _ = c.stamps()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("server: tls: %w", err)
	}
	c.current = &pair
	return c, nil
}

// get returns the pair to use at now.
func (c *certificate) get(now time.Time) *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := now.Sub(c.looked); since >= lookEvery || since < 0 {
		c.looked = now
		c.refresh()
	}
	return c.current
}

func (c *certificate) refresh() {
	seen, err := c.stamps()
	if err != nil || seen == c.seen {
		return // gone for the moment, or nothing new
	}
	c.seen = seen
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		c.log.Error("a changed certificate is not used; the one of before stays", "file", c.certFile, "error", err)
		return
	}
	c.current = &pair
	c.log.Info("a new certificate is in use", "file", c.certFile, "until", pair.Leaf.NotAfter)
}

func (c *certificate) stamps() (s [2]stamp, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return s, err
		}
		s[i] = stamp{info.ModTime(), info.Size()}
	}
	return s, nil
}

// listenerTLS is how the API speaks TLS.
func (c *certificate) listenerTLS() *tls.Config {
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(time.Now()), nil },
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
	}
}
