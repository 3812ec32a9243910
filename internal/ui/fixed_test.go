package ui

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// fixed is a platform and an API whose answers are written down, and a visitor who has signed in.
type fixed struct {
	t       *testing.T
	u       *UI
	who     Who
	unknown bool // the visitor's key is revoked
	cookies []*http.Cookie

	lanes   []fanout.LaneStatus
	tenants []fanout.TenantStatus
	stats   fanout.Stats

	answers map[string]any // by method and path
	asked   []string       // method, address, and body if there is one
}

func (f *fixed) Lanes() []fanout.LaneStatus     { return slices.Clone(f.lanes) }
func (f *fixed) Tenants() []fanout.TenantStatus { return f.tenants }
func (f *fixed) Stats() fanout.Stats            { return f.stats }

func (f *fixed) Lane(subscription string) (fanout.LaneStatus, bool) {
	i := slices.IndexFunc(f.lanes, func(l fanout.LaneStatus) bool { return l.Subscription == subscription })
	if i < 0 {
		return fanout.LaneStatus{}, false
	}
	return f.lanes[i], true
}

// ServeHTTP is the API.
func (f *fixed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.asked = append(f.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	answer, ok := f.answers[r.Method+" "+r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		f.t.Error(err)
	}
}

// visit signs a visitor in, who sees everything.
func (f *fixed) visit(t *testing.T) *fixed {
	f.t = t
	f.u = New(Options{API: f, Platform: f, Identify: func(string) (Who, bool) { return f.who, !f.unknown },
		As: func(r *http.Request, _ string) *http.Request { return r }, Links: func(string) uint32 { return 0 }})
	t.Cleanup(f.u.Close)
	f.cookies = f.do("POST", "/ui/sign-in", url.Values{"key": {"k"}}).Result().Cookies()
	return f
}

func (f *fixed) do(method, path string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	for _, c := range f.cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	f.u.Handler().ServeHTTP(w, r)
	return w
}

// act sends a form with its token, and returns where the answer leads.
func (f *fixed) act(path string, pairs ...string) string {
	f.t.Helper()
	r := httptest.NewRequest("GET", "/", nil)
	r.AddCookie(f.cookies[0])
	s, _ := f.u.sessions.of(r, time.Now())
	form := url.Values{"token": {s.token}}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	w := f.do("POST", path, form)
	return fmt.Sprint(w.Code, " ", w.Header().Get("Location"))
}

var tag = regexp.MustCompile(`<[^>]*>`)

// words is what a person reads of a page, with one space between the words.
func words(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tag.ReplaceAllString(page, " "))), " ")
}

// reads fails the test unless the page reads so: the texts one after the other.
func (f *fixed) reads(path string, texts ...string) string {
	f.t.Helper()
	w := f.do("GET", path, nil)
	rest := words(w.Body.String())
	for _, text := range texts {
		_, after, ok := strings.Cut(rest, text)
		if !ok {
			f.t.Errorf("%s: %d, lacks %q, or has it too early: %s", path, w.Code, text, words(w.Body.String()))
			break
		}
		rest = after
	}
	return w.Body.String()
}

// asks fails the test unless the API was asked so, in this order, since the last time.
func (f *fixed) asks(want ...string) {
	f.t.Helper()
	if !slices.Equal(f.asked, want) {
		f.t.Errorf("the API was asked\n%s\nwant\n%s", strings.Join(f.asked, "\n"), strings.Join(want, "\n"))
	}
	f.asked = nil
}
