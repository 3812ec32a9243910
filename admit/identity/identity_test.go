package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func request(host string, headers ...string) *http.Request {
	r := httptest.NewRequest("GET", "http://"+host+"/", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func keysOf(t *testing.T, pairs ...string) *Keys {
	t.Helper()
	k := &Keys{}
	setKeys(t, k, pairs...)
	return k
}

func setKeys(t *testing.T, k *Keys, pairs ...string) {
	t.Helper()
	var entries []Entry
	for i := 0; i < len(pairs); i += 2 {
		entries = append(entries, Entry{Hash(pairs[i]), Identity{Tenant: pairs[i+1]}})
	}
	if _, err := k.Set(entries); err != nil {
		t.Fatal(err)
	}
}

// Nothing that a caller can invent chooses the tenant, and what names another
// tenant than the credential is refused.
// Field case 88.
// Field case 94.
func TestTheTenantIsTheCredentialsAndNothingElses(t *testing.T) {
	r := &Resolver{Sources: []Source{keysOf(t, "key-a", "a", "key-b", "b")}, Domain: "api.example.com", Header: "X-Tenant-Id"}
	for _, tc := range []struct {
		name    string
		request *http.Request
		tenant  string
		err     error
	}{
		{"its own key", request("api.example.com", "Authorization", "Bearer key-a"), "a", nil},
		{"its own subdomain", request("A.api.example.com.:443", "Authorization", "bearer key-a"), "a", nil},
		{"another domain", request("other.example.org", "Authorization", "Bearer key-a"), "a", nil},
		{"a header alone", request("api.example.com", "X-Tenant-Id", "a"), "", ErrNone},
		{"a subdomain alone", request("a.api.example.com"), "", ErrNone},
		{"an invented key", request("api.example.com", "Authorization", "Bearer zz", "X-Tenant-Id", "a"), "", ErrBroken},
		{"another's subdomain", request("b.api.example.com", "Authorization", "Bearer key-a"), "", ErrMismatch},
		{"a deeper subdomain", request("a.b.api.example.com", "Authorization", "Bearer key-a"), "", ErrMismatch},
		{"another's header", request("api.example.com", "Authorization", "Bearer key-a", "X-Tenant-Id", "b"), "", ErrMismatch},
		{"a second header line", request("api.example.com", "Authorization", "Bearer key-a", "X-Tenant-Id", "a", "X-Tenant-Id", "b"), "", ErrMismatch},
		{"two credentials", request("api.example.com", "Authorization", "Bearer key-a", "Authorization", "Bearer key-b"), "", ErrBroken},
		{"another scheme", request("api.example.com", "Authorization", "Basic a2V5LWE="), "", ErrBroken},
		{"an endless key", request("api.example.com", "Authorization", "Bearer "+strings.Repeat("x", 1<<20)), "", ErrBroken},
	} {
		id, err := r.Resolve(tc.request)
		if id.Tenant != tc.tenant || !errors.Is(err, tc.err) {
			t.Errorf("%s: %q, %v; want %q, %v", tc.name, id.Tenant, err, tc.tenant, tc.err)
		}
	}
}

// A key that is taken away is refused at once, and one that is given to another
// tenant is that tenant's at once.
// Field case 94.
func TestKeysAreNotRememberedBeyondTheirFile(t *testing.T) {
	k := keysOf(t, "one", "a", "two", "a")
	setKeys(t, k, "two", "b")
	if _, err := k.Resolve(request("h", "Authorization", "Bearer one")); !errors.Is(err, ErrBroken) {
		t.Errorf("a revoked key: %v", err)
	}
	if id, err := k.Resolve(request("h", "Authorization", "Bearer two")); err != nil || id.Tenant != "b" {
		t.Errorf("a key issued anew: %q, %v", id.Tenant, err)
	}
	if _, err := k.Set([]Entry{{"zz", Identity{Tenant: "x"}}}); err == nil {
		t.Error("a wrong hash is accepted")
	}
	if id, _ := k.Resolve(request("h", "Authorization", "Bearer two")); id.Tenant != "b" {
		t.Error("a refused set changed the keys")
	}
}

func TestTwoCredentialsMustAgree(t *testing.T) {
	private, set := newEC(t)
	tokens := NewTokens(Claims{}, nil)
	tokens.SetKeys(set)
	k := keysOf(t, "key-a", "a")
	k.Header = "X-Api-Key"
	r := &Resolver{Sources: []Source{k, tokens}}
	bearer := func(tenant string) string {
		return "Bearer " + signed(t, jwt.SigningMethodES256, private, "", jwt.MapClaims{"tenant": tenant, "exp": later()})
	}
	for _, tc := range []struct {
		key, token string
		err        error
	}{{"key-a", bearer("a"), nil}, {"key-a", bearer("b"), ErrMismatch}, {"zz", bearer("a"), ErrBroken}, {"key-a", "Bearer x.y.z", ErrBroken}} {
		if _, err := r.Resolve(request("h", "X-Api-Key", tc.key, "Authorization", tc.token)); !errors.Is(err, tc.err) {
			t.Errorf("key %s: %v, want %v", tc.key, err, tc.err)
		}
	}
}

func later() int64 { return time.Now().Add(time.Hour).Unix() }

func newEC(t *testing.T) (*ecdsa.PrivateKey, *KeySet) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set, err := ParseKeys(pemOf(t, &private.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	return private, set
}

func pemOf(t *testing.T, public any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func signed(t *testing.T, m jwt.SigningMethod, key any, kid string, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(m, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A token counts only if it is signed by the operator's key with that key's
// algorithm, is of its time, issuer and audience, and names a tenant.
// Field case 88.
func TestTokensThatAreForgedOrStaleAreBroken(t *testing.T) {
	private, set := newEC(t)
	other, _ := newEC(t)
	tokens := NewTokens(Claims{Tier: "tier", Issuer: "us", Audience: "gate"}, nil)
	tokens.SetKeys(set)
	claims := func(change ...any) jwt.MapClaims {
		c := jwt.MapClaims{"tenant": "acme", "sub": "ann", "tier": "pro", "iss": "us", "aud": []string{"gate"}, "exp": later()}
		for i := 0; i < len(change); i += 2 {
			if c[change[i].(string)] = change[i+1]; change[i+1] == nil {
				delete(c, change[i].(string))
			}
		}
		return c
	}
	good := signed(t, jwt.SigningMethodES256, private, "", claims())
	id, err := tokens.Resolve(request("h", "Authorization", "Bearer "+good))
	if err != nil || id != (Identity{"acme", "ann", "pro"}) {
		t.Fatalf("%+v, %v", id, err)
	}
	der, _ := x509.MarshalPKIXPublicKey(&private.PublicKey)
	for name, token := range map[string]string{
		"another's key":        signed(t, jwt.SigningMethodES256, other, "", claims()),
		"an unknown key":       signed(t, jwt.SigningMethodES256, private, "zz", claims()),
		"none":                 signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "", claims()),
		"public key as secret": signed(t, jwt.SigningMethodHS256, der, "", claims()),
		"expired":              signed(t, jwt.SigningMethodES256, private, "", claims("exp", time.Now().Add(-time.Hour).Unix())),
		"without expiry":       signed(t, jwt.SigningMethodES256, private, "", claims("exp", nil)),
		"not yet":              signed(t, jwt.SigningMethodES256, private, "", claims("nbf", later())),
		"another issuer":       signed(t, jwt.SigningMethodES256, private, "", claims("iss", "them")),
		"another audience":     signed(t, jwt.SigningMethodES256, private, "", claims("aud", "door")),
		"without a tenant":     signed(t, jwt.SigningMethodES256, private, "", claims("tenant", nil)),
		"tenant is a number":   signed(t, jwt.SigningMethodES256, private, "", claims("tenant", 7)),
		"an endless tenant":    signed(t, jwt.SigningMethodES256, private, "", claims("tenant", strings.Repeat("x", 300))),
		"changed":              good[:len(good)-4] + "AAAA",
	} {
		if _, err := tokens.Resolve(request("h", "Authorization", "Bearer "+token)); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A tenant's name that a header would change is nobody's: blanks at its ends are lost
// on the way to the service.
// Field case 88.
func TestATenantsNameIsTheSameInAHeader(t *testing.T) {
	private, set := newEC(t)
	tokens := NewTokens(Claims{}, nil)
	tokens.SetKeys(set)
	r := &Resolver{Sources: []Source{tokens}}
	for _, tc := range []struct {
		tenant string
		err    error
	}{{"acme", nil}, {"Acme & Söhne", nil}, {"acme ", ErrBroken}, {"\tacme", ErrBroken}, {"\u00a0acme", ErrBroken}, {"ac\r\nme", ErrBroken}, {" ", ErrBroken}} {
		token := signed(t, jwt.SigningMethodES256, private, "", jwt.MapClaims{"tenant": tc.tenant, "exp": later()})
		if id, err := r.Resolve(request("h", "Authorization", "Bearer "+token)); !errors.Is(err, tc.err) {
			t.Errorf("%q: %+v, %v", tc.tenant, id, err)
		}
	}
	r.Sources = []Source{source("m\xfcller")} // which a label cannot hold either
	if _, err := r.Resolve(request("h")); !errors.Is(err, ErrBroken) {
		t.Errorf("no UTF-8: %v", err)
	}
}

// source names a tenant of every request.
type source string

func (s source) Resolve(*http.Request) (Identity, error) { return Identity{Tenant: string(s)}, nil }

func TestKeySetsOfEveryKind(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	edPublic, edKey, _ := ed25519.GenerateKey(rand.Reader)
	raw := base64.RawURLEncoding.EncodeToString
	point, _ := ecKey.PublicKey.Bytes()
	document, _ := json.Marshal(map[string]any{"keys": []map[string]string{
		{"kty": "RSA", "kid": "r", "use": "sig", "n": raw(rsaKey.N.Bytes()), "e": raw(big.NewInt(int64(rsaKey.E)).Bytes())},
		{"kty": "EC", "kid": "e", "crv": "P-384", "x": raw(point[1:49]), "y": raw(point[49:])},
		{"kty": "OKP", "kid": "o", "crv": "Ed25519", "x": raw(edPublic)},
		{"kty": "OKP", "kid": "x", "crv": "X25519", "x": raw(edPublic)}, // not for signing: left out
	}})
	set, err := ParseKeys(document)
	if err != nil || set.Len() != 3 {
		t.Fatalf("%v, %v", set, err)
	}
	tokens := NewTokens(Claims{}, nil)
	tokens.SetKeys(set)
	claims := jwt.MapClaims{"tenant": "a", "exp": later()}
	for _, token := range []string{
		signed(t, jwt.SigningMethodRS256, rsaKey, "r", claims),
		signed(t, jwt.SigningMethodES384, ecKey, "e", claims),
		signed(t, jwt.SigningMethodEdDSA, edKey, "o", claims),
	} {
		if _, err := tokens.Resolve(request("h", "Authorization", "Bearer "+token)); err != nil {
			t.Error(err)
		}
	}
	for name, text := range map[string]string{
		"empty": `{"keys":[]}`, "no JSON": `hello`, "private": `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + raw(edPublic) + `","d":"AA"}]}`,
		"secret": `{"keys":[{"kty":"oct","k":"AAAA"}]}`, "short": `{"keys":[{"kty":"RSA","n":"` + raw(big.NewInt(15).Bytes()) + `","e":"AQAB"}]}`,
		"off the curve": `{"keys":[{"kty":"EC","crv":"P-256","x":"` + raw(make([]byte, 32)) + `","y":"` + raw(make([]byte, 32)) + `"}]}`,
	} {
		if _, err := ParseKeys([]byte(text)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// Keys are fetched at the start, when a token names an unknown one, and not more
// often than every ten seconds however many tokens do.
func TestUnknownKeysAreFetchedButNotOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edPublic, edKey, _ := ed25519.GenerateKey(rand.Reader)
		var fetches atomic.Int64
		f := NewFetcher("http://keys")
		f.Client = &http.Client{Transport: answers(func(*http.Request) (*http.Response, error) {
			if fetches.Add(1) == 1 {
				return nil, errors.New("away")
			}
			body := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"new","x":%q}]}`, base64.RawURLEncoding.EncodeToString(edPublic))
			w := httptest.NewRecorder()
			w.WriteString(body)
			return w.Result(), nil
		})}
		tokens := NewTokens(Claims{}, f.Want)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.Run(ctx, tokens)
		synctest.Wait()
		r := request("h", "Authorization", "Bearer "+signed(t, jwt.SigningMethodEdDSA, edKey, "new", jwt.MapClaims{"tenant": "a", "exp": later()}))
		for range 1000 {
			if _, err := tokens.Resolve(r); err == nil {
				t.Fatal("there is no key yet")
			}
		}
		synctest.Wait()
		if n := fetches.Load(); n != 1 {
			t.Fatalf("%d fetches within the first instant", n)
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		if _, err := tokens.Resolve(r); err != nil || fetches.Load() != 2 {
			t.Errorf("%v after %d fetches", err, fetches.Load())
		}
	})
}

func TestTheContextCarriesTheTenant(t *testing.T) {
	if _, ok := From(t.Context()); ok {
		t.Error("an identity out of nowhere")
	}
	if id, ok := From(context.WithoutCancel(With(t.Context(), Identity{Tenant: "a"}))); !ok || id.Tenant != "a" {
		t.Error("background work lost its tenant")
	}
}
