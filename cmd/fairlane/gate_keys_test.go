package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A reload while the address of the tokens' keys does not answer refuses nobody: the
// keys that are held go on; an address that is new must answer, or nothing changes.
func TestReloadKeepsTheKeysOfTokens(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	var away atomic.Bool
	asked := make(chan struct{}, 100)
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer func() { asked <- struct{}{} }()
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	}))
	defer issuer.Close()
	path := filepath.Join(t.TempDir(), "gate.yaml")
	policies := fmt.Sprintf("upstream: %s\nidentity: {jwt: {jwks: %s}}\ntiers: {free: {}}\ndefault_tier: free\n", upstream(t).URL, issuer.URL)
	write(t, path, policies)
	g, err := openGate(t.Context(), path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	token, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"tenant": "acme", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() int {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		return w.Code
	}
	<-asked
	for until := time.Now().Add(time.Minute); ask() != 200 && time.Now().Before(until); {
		<-time.After(time.Millisecond) // the keys have been sent, and are not yet in force
	}
	away.Store(true)
	g.reload(t.Context())
	if code := ask(); code != 200 {
		t.Errorf("after a reload: %d", code)
	}
	write(t, path, strings.Replace(policies, issuer.URL, issuer.URL+"/other", 1))
	g.reload(t.Context())
	if code := ask(); code != 200 || g.file.Identity.JWKS != issuer.URL {
		t.Errorf("after a reload with an address that does not answer: %d, keys of %s", code, g.file.Identity.JWKS)
	}
}
