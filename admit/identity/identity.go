// Package identity finds out whose request it is, once, from something that a
// caller cannot forge: an API key, or a signed token (JWT). A subdomain, or a
// header that names a tenant, is never believed; it may only agree with the
// credential. The tenant then travels in the context.
//
// Nothing is cached beside what a Directory holds: a key that is taken out of it
// is refused from the next request on, and the tenant is always that of the key
// as it stands now.
package identity

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Identity is whose request it is.
type Identity struct {
	Tenant string
	User   string // of the tenant; "" if the credential names none
	Tier   string // "" if the credential names none: the tenant's is looked up
}

type contextKey struct{}

// With returns a context that carries the identity, for everything downstream:
// handlers, log lines, outbound calls, work that outlives the request.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// From returns the identity that a context carries.
func From(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(contextKey{}).(Identity)
	return id, ok
}

// Errors of Resolve. None of them says which part of a credential is wrong.
var (
	ErrNone     = errors.New("identity: no credential was presented")
	ErrBroken   = errors.New("identity: the credential is not valid")
	ErrMismatch = errors.New("identity: the request names another tenant than its credential")
)

// Source is one kind of credential. It returns ErrNone if the request has none of
// its kind, another error if it has a broken one.
type Source interface {
	Resolve(*http.Request) (Identity, error)
}

// isTenant reports whether a name is the same after it has travelled in a header,
// which loses blanks at the ends ("acme " would be acme to the service), and can be a
// metric's label, which is UTF-8.
func isTenant(name string) bool {
	return name != "" && strings.TrimSpace(name) == name && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// Resolver joins sources with what a request may say beside its credential.
// Immutable; safe for concurrent use.
type Resolver struct {
	Sources []Source
	Domain  string // requests to {tenant}.Domain must be of that tenant; "": not looked at
	Header  string // a header that, if present, must name the tenant; "": not looked at
}

// Resolve returns whose request it is. Every credential that it presents must be
// valid, and all must be of one tenant: a second one that is broken or another's
// is never ignored.
func (r *Resolver) Resolve(req *http.Request) (Identity, error) {
	id, err := r.credential(req)
	if err != nil {
		return Identity{}, err
	}
	if !r.agrees(req, id.Tenant) {
		return Identity{}, ErrMismatch
	}
	return id, nil
}

func (r *Resolver) credential(req *http.Request) (id Identity, err error) {
	found := false
	for _, s := range r.Sources {
		own, err := s.Resolve(req)
		switch {
		case errors.Is(err, ErrNone):
			continue
		case err != nil:
			return Identity{}, err
		case !isTenant(own.Tenant):
			return Identity{}, ErrBroken
		case found && own.Tenant != id.Tenant:
			return Identity{}, ErrMismatch
		case !found:
			id, found = own, true
		}
	}
	if !found {
		return Identity{}, ErrNone
	}
	return id, nil
}
