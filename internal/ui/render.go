package ui

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// page is one row of the pages' table. make answers with a view; act does something and answers with
// the address, below the visitor's base, that shows what came of it.
type page struct {
	pattern string // of the address below the base
	admin   bool   // not for tenants: to them it does not exist
	make    func(*UI, *visit) (*view, error)
	act     func(*UI, *visit) (to string, err error)
}

// pages is every page.
var pages = []page{
	{"GET /{$}", false, (*UI).first, nil},
	{"GET /lanes", true, (*UI).lanes, nil},
	{"GET /lanes/{subscription}", false, (*UI).lane, nil},
	{"GET /dead", false, (*UI).dead, nil},
	{"POST /dead/replay", false, nil, (*UI).replayDead},
	{"GET /dead/purge", false, (*UI).askPurge, nil},
	{"POST /dead/purge", false, nil, (*UI).purgeDead},
	{"GET /dead/{subscription}/{trigger}", false, (*UI).deadLetter, nil},
	{"POST /dead/{subscription}/{trigger}/delete", false, nil, (*UI).deleteDead},
	{"GET /replays", false, (*UI).replays, nil},
	{"GET /replays/count", false, (*UI).countReplay, nil},
	{"GET /replays/{id}", false, (*UI).replay, nil},
	{"POST /replays/{id}/{act}", false, nil, (*UI).actReplay},
	{"GET /trigger", false, (*UI).trigger, nil},
	{"GET /tenants/{tenant}", true, (*UI).tenantOf, nil},
	{"GET /tenants/{tenant}/link", true, (*UI).showLink, nil},
	{"POST /tenants/{tenant}/link/revoke", true, nil, (*UI).revokeLinks},
	{"POST /lanes/{subscription}/test", false, nil, (*UI).testLane},
	{"POST /lanes/{subscription}/rotate", false, (*UI).rotate, nil},
	{"GET /what-if", false, (*UI).whatIf, nil},
	{"/", false, func(*UI, *visit) (*view, error) { return nil, errNothing }, nil},
}

// view is what a template gets.
type view struct {
	page   string // the file in pages/
	Title  string
	Nav    string // which entry of the navigation it stands under
	Data   any
	Frozen bool // no live parts this time

	Base, Token string
	Signed      bool // in
	Who         Who
	Acts        bool
	Link        bool
	LinkUntil   time.Time
	Path        string // of this page, with its query
	At          string
}

func (s *view) complete(v *visit) {
	s.Base, s.Token, s.Signed, s.Who, s.Acts = v.base, v.token, v.token != "", v.who, v.acts
	if v.link != nil {
		s.Link, s.LinkUntil = true, v.link.until
	}
	if v.Request != nil {
		s.Path = v.base + v.URL.RequestURI()
	}
	s.At = time.Now().UTC().Format("15:04:05 UTC")
}

// Live reports whether the page has parts that move.
func (s *view) Live() bool { return !s.Frozen && s.Signed && len(liveParts(templates[s.page])) > 0 }

//go:embed pages
var files embed.FS

// templates are the pages, each with the frame around it.
var templates = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	names, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		short := strings.TrimSuffix(strings.TrimPrefix(name, "pages/"), ".html")
		if short == "frame" || short == "parts" {
			continue
		}
		all[short] = template.Must(template.New("frame.html").Funcs(functions).ParseFS(files, "pages/frame.html", "pages/parts.html", name))
	}
	return all
}()

// answer serves a page of the table.
func (u *UI) answer(p *page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := r.Context().Value(visitKey{}).(*visit)
		v.Request = r // with the values of the pattern
		switch {
		case p.admin && !v.who.Admin():
			u.fail(w, v, errNothing)
		case p.act != nil:
			to, err := p.act(u, v)
			if err != nil {
				u.fail(w, v, err)
				return
			}
			http.Redirect(w, r, v.base+to, http.StatusSeeOther)
		case wantsStream(r) && r.Method == http.MethodGet:
			u.stream(w, v, p)
		default:
			s, err := p.make(u, v)
			if err != nil {
				u.fail(w, v, err)
				return
			}
			u.show(w, v, http.StatusOK, s)
		}
	})
}

// show renders s whole before the first byte leaves.
func (u *UI) show(w http.ResponseWriter, v *visit, status int, s *view) {
	s.complete(v)
	var b bytes.Buffer
	if err := templates[s.page].Execute(&b, s); err != nil {
		http.Error(w, "This page could not be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

func (u *UI) fail(w http.ResponseWriter, v *visit, err error) {
	e := asProblem(err)
	u.show(w, v, e.Status, &view{page: "problem", Title: e.Title, Data: e})
}

var functions = template.FuncMap{
	"n":        number,
	"bytes":    size,
	"ratio":    ratio,
	"ms":       func(ms float64) string { return brief(time.Duration(ms * float64(time.Millisecond))) },
	"dur":      brief,
	"due":      due,
	"again":    again,
	"answer":   answerOf,
	"time":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"iso":      func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"plain":    plainReason,
	"path":     escapePath,
	"decimal":  decimal,
	"rate":     rate,
	"dict":     dict,
	"isAbsent": func(t *time.Time) bool { return t == nil || t.IsZero() },
}

func escapePath(s string) string { return url.PathEscape(s) }

// dict makes a map of pairs, for templates that take several values.
func dict(pairs ...any) (map[string]any, error) {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: name %d is no text", i)
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// number writes a whole number with separators.
func number(v any) string {
	s := fmt.Sprint(v)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// decimal writes a figure as a person would.
func decimal(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case v == math.Trunc(v) && math.Abs(v) < 1e15:
		return number(int64(v))
	case math.Abs(v) >= 100:
		return number(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// rate writes what comes in a second, to a hundredth: a measured one is no more exact.
func rate(v float64) string {
	switch {
	case v > 0 && v < 0.005:
		return "under 0.01"
	case v < 10:
		return decimal(math.Round(v*100) / 100)
	}
	return decimal(v)
}

func ratio(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

func percent(part, whole float64) int {
	if whole <= 0 || math.IsNaN(part) {
		return 0
	}
	return int(math.Round(100 * min(max(part/whole, 0), 1)))
}

func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for ; v >= unit && i < 4; i++ {
		v /= unit
	}
	return fmt.Sprintf("%.1f %s", v, []string{"KiB", "MiB", "GiB", "TiB", "PiB"}[i])
}

// brief writes a duration with two figures or three, rounded.
func brief(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1000)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

// due says when something comes that has an instant of its own.
func due(t time.Time) string {
	if d := time.Until(t); d > 0 {
		return "again in " + brief(d)
	}
	return "due now"
}

// again says when something comes that has an instant of its own, unless that has passed.
func again(t *time.Time) string {
	if t == nil || time.Until(*t) <= 0 {
		return ""
	}
	return due(*t)
}

// answerOf is a record's detail without the word that its status says already.
func answerOf(detail string) string {
	return strings.TrimPrefix(strings.TrimPrefix(detail, "status"), ": ")
}
