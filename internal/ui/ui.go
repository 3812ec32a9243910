// Package ui is the pages of the service, for operators and tenants, under /ui/.
//
// They are rendered here and work without scripts. A page reads and acts through the API's own
// handler with the visitor's own authority, so roles, checks and the record of acts are the
// API's: there is no second set of rules, and what a key may not see does not exist on its pages
// either. Only the figures that an operator watches come from a snapshot of the running service
// (snapshot.go).
//
// The same page answers a browser and, where it has live parts, a stream of server-sent events
// that carries those parts again whenever they change (live.go).
package ui

import (
	"context"
	"embed"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// Platform is what the pages read of the running service; *fanout.Fanout is one.
type Platform interface {
	Lanes() []fanout.LaneStatus
	Lane(subscription string) (fanout.LaneStatus, bool)
	Tenants() []fanout.TenantStatus
	Stats() fanout.Stats
}

// Who is a visitor.
type Who struct {
	Tenant string // whose pages alone it sees; "" is an administrator
}

// Admin reports whether the visitor sees everything.
func (w Who) Admin() bool { return w.Tenant == "" }

// Options of New. API, Platform, Identify, As and Links are required.
type Options struct {
	API      http.Handler                              // the service's
	Platform Platform                                  // the same service
	Identify func(key string) (who Who, ok bool)       // whose key it is; false: nobody's, or of a role without pages
	As       func(*http.Request, string) *http.Request // gives a request to the API a tenant's authority
	Links    func(tenant string) uint32                // generation of a tenant's links: those of another are revoked
	LinkKey  []byte                                    // signs links; nil: a random one, and links end with the process
	Embed    []string                                  // origins that may show a signed link in a frame; none: nobody
}

// UI serves the pages. Safe for concurrent use. Close it.
type UI struct {
	o        Options
	sessions sessions
	linkKey  []byte
	shot     snapshots
	outer    *http.ServeMux
	inner    *http.ServeMux
	streams  chan struct{} // holds one token for each open stream
	closed   context.Context
	close    context.CancelFunc
	work     sync.WaitGroup
}

// maxStreams bounds the pages that are watched live at once. One more still shows, and stands still.
const maxStreams = 200

//go:embed assets
var assets embed.FS

// New returns the pages of one service.
func New(o Options) *UI {
	u := &UI{o: o, linkKey: linkKey(o.LinkKey), outer: http.NewServeMux(), inner: http.NewServeMux(), streams: make(chan struct{}, maxStreams)}
	u.closed, u.close = context.WithCancel(context.Background())
	u.shot.read = u.read
	u.outer.Handle("GET /ui/assets/", http.StripPrefix("/ui", cached(http.FileServerFS(assets))))
	u.outer.HandleFunc("GET /ui/sign-in", u.signInPage)
	u.outer.HandleFunc("POST /ui/sign-in", u.signIn)
	u.outer.HandleFunc("POST /ui/sign-out", u.signOut)
	u.outer.HandleFunc("/ui/t/{link}/", u.byLink)
	u.outer.HandleFunc("/ui/", u.bySession)
	for _, p := range pages {
		u.inner.Handle(p.pattern, u.answer(&p))
	}
	return u
}

// Close ends the live streams and waits for them.
func (u *UI) Close() {
	u.close()
	u.work.Wait()
}

// Handler serves /ui and what is below it.
func (u *UI) Handler() http.Handler {
	guard := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.headers(w)
		if r.URL.Path == "/ui" || r.URL.Path == "/" {
			http.Redirect(w, r, "/ui/", http.StatusSeeOther)
			return
		}
		if err := guard.Check(r); err != nil {
			http.Error(w, "This form was sent from another site.", http.StatusForbidden)
			return
		}
		if r.Body != nil {
			r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		}
		u.outer.ServeHTTP(w, r)
	})
}

// headers lets a page load nothing that is not from here, run no script but the one file, and be framed by
// nobody. A signed link widens the last.
func (u *UI) headers(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy("'none'"))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func policy(ancestors string) string {
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors " + ancestors
}

// cached lets a browser keep the assets for a while: a new release has new ones.
func cached(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "max-age=300")
		h.ServeHTTP(w, r)
	})
}

// visit is one request of somebody who may see pages.
type visit struct {
	*http.Request
	who   Who
	base  string // of every address on the page: "/ui", or a signed link's
	token string // that every form carries
	key   string // of the API; "" with a link
	acts  bool   // may do more than look
	link  *link  // nil: by key
}

type visitKey struct{}

// bySession lets in who has signed in.
func (u *UI) bySession(w http.ResponseWriter, r *http.Request) {
	s, ok := u.sessions.of(r, time.Now())
	if !ok {
		u.askForKey(w, r)
		return
	}
	who, ok := u.o.Identify(s.key) // a key that was revoked opens nothing any more
	if !ok {
		u.sessions.end(w, r)
		u.askForKey(w, r)
		return
	}
	u.enter(w, r, &visit{who: who, base: "/ui", token: s.token, key: s.key, acts: true})
}

// askForKey sends a browser to the form, and back afterwards.
func (u *UI) askForKey(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || wantsStream(r) {
		http.Error(w, "Sign in first.", http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r, "/ui/sign-in?to="+escape(strings.TrimPrefix(r.URL.RequestURI(), "/ui")), http.StatusSeeOther)
}

// byLink lets in who has a signed link that is still good. Every other is told what an address is told that
// never was.
func (u *UI) byLink(w http.ResponseWriter, r *http.Request) {
	l, ok := u.openLink(r.PathValue("link"), time.Now())
	if !ok {
		u.fail(w, &visit{Request: r, base: "/ui"}, errNothing)
		return
	}
	if len(u.o.Embed) > 0 {
		w.Header().Set("Content-Security-Policy", policy(strings.Join(u.o.Embed, " ")))
	}
	u.enter(w, r, &visit{who: Who{Tenant: l.tenant}, base: "/ui/t/" + l.text, token: u.linkToken(l), acts: l.acts, link: l})
}

// enter hands the request to the page, whose pattern knows nothing of the base.
func (u *UI) enter(w http.ResponseWriter, r *http.Request, v *visit) {
	if r.Method == http.MethodPost {
		switch {
		case !sameText(r.PostFormValue("token"), v.token):
			u.fail(w, v.with(r), &apiError{Status: http.StatusForbidden, Title: "This form is too old", Detail: "go back, reload the page and send it again"})
			return
		case !v.acts:
			u.fail(w, v.with(r), &apiError{Status: http.StatusForbidden, Title: "This link may look and not act", Detail: "ask for a link that may act"})
			return
		}
	}
	inner := r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	path := *r.URL
	path.Path, path.RawPath = strings.TrimPrefix(r.URL.Path, v.base), strings.TrimPrefix(r.URL.RawPath, v.base)
	inner.URL = &path
	v.Request = inner
	u.inner.ServeHTTP(w, inner)
}

func (v *visit) with(r *http.Request) *visit {
	v.Request = r
	return v
}
