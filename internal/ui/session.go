package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	cookieName  = "fairlane_session"
	sessionLife = 12 * time.Hour
	maxSessions = 10_000
)

// session is one sign-in. The cookie holds its id alone; the key stays here.
type session struct {
	key   string
	token string // of its forms
	until time.Time
}

// sessions are those of this process; a restart ends them. Safe for concurrent use.
type sessions struct {
	mu   sync.Mutex
	byID map[string]session
}

// begin opens a session and sets its cookie. When there are too many, those that have ended make room, else
// any one.
func (s *sessions) begin(w http.ResponseWriter, r *http.Request, key string, now time.Time) {
	id := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]session{}
	}
	if len(s.byID) >= maxSessions {
		s.makeRoom(now)
	}
	s.byID[id] = session{key: key, token: rand.Text(), until: now.Add(sessionLife)}
	http.SetCookie(w, cookie(r, id, int(sessionLife.Seconds())))
}

func (s *sessions) makeRoom(now time.Time) {
	any := ""
	for id, one := range s.byID {
		if any = id; one.until.Before(now) {
			delete(s.byID, id)
		}
	}
	if len(s.byID) >= maxSessions {
		delete(s.byID, any)
	}
}

func cookie(r *http.Request, value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: cookieName, Value: value, Path: "/ui/", MaxAge: seconds, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode}
}

// of finds r's session.
func (s *sessions) of(r *http.Request, now time.Time) (session, bool) {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return session{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.byID[c.Value]
	return one, ok && now.Before(one.until)
}

// end forgets r's session.
func (s *sessions) end(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		s.mu.Lock()
		delete(s.byID, c.Value)
		s.mu.Unlock()
	}
	http.SetCookie(w, cookie(r, "", -1))
}

func sameText(a, b string) bool {
	return b != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// signIn begins a session for a key that the API takes.
func (u *UI) signIn(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimSpace(r.PostFormValue("key"))
	if _, ok := u.o.Identify(key); !ok || key == "" {
		u.signInForm(w, r, http.StatusUnauthorized, "No page opens with this key. It is an administrator's or a tenant's key that is asked for.")
		return
	}
	u.sessions.end(w, r)
	w.Header().Del("Set-Cookie")
	u.sessions.begin(w, r, key, time.Now())
	http.Redirect(w, r, "/ui"+local(r.PostFormValue("to")), http.StatusSeeOther)
}

// signOut needs no token: SameSite keeps other sites from sending it, and it changes nothing but the session.
func (u *UI) signOut(w http.ResponseWriter, r *http.Request) {
	u.sessions.end(w, r)
	http.Redirect(w, r, "/ui/sign-in", http.StatusSeeOther)
}

func (u *UI) signInPage(w http.ResponseWriter, r *http.Request) {
	u.signInForm(w, r, http.StatusOK, "")
}

func (u *UI) signInForm(w http.ResponseWriter, r *http.Request, status int, problem string) {
	v := &visit{Request: r, base: "/ui"}
	u.show(w, v, status, &view{page: "sign-in", Title: "Sign in", Data: map[string]string{"To": local(r.FormValue("to")), "Problem": problem}})
}

// local is a path below /ui, or its first page.
func local(to string) string {
	p, err := url.Parse(to)
	if err != nil || p.IsAbs() || p.Host != "" || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.Contains(to, `\`) {
		return "/"
	}
	return to
}

func escape(s string) string { return url.QueryEscape(s) }
