package admit

import (
	"net/url"
	"path"
	"slices"
	"strings"
)

// Route returns the name of the first route that matches, or DefaultRoute. The
// path is as it was sent: escaped, without a query. It is decoded and cleaned:
// //a/b/ is /a/b. In a pattern * stands for one segment, and ** at the end for
// any that follow, none included. What no route names so is looked for once more,
// HEAD as GET, and without regard to case: many services serve it alike.
//
// Services do not read every path alike: . and .. are resolved or are text, %2F and \
// separate or do not, and what follows a ; may be left out. ok is false for a path
// that is in one route or in another by how it is read: the gate would price one,
// and the service serve the other. So is a path of over 1 KiB that holds any of these.
func (g *Gate) Route(method, p string) (name string, ok bool) {
	if len(g.config.Routes) == 0 {
		return DefaultRoute, true
	}
	most := differ(p)
	switch {
	case most == manner{}:
		return g.first(method, path.Clean("/"+decode(p))), true
	case len(p) > maxDoubtful:
		return DefaultRoute, false
	}
	for i, m := range manners {
		if !m.within(most) {
			continue
		}
		switch r := g.first(method, m.read(p)); {
		case i == 0:
			name = r
		case r != name:
			return DefaultRoute, false
		}
	}
	return name, true
}

// maxDoubtful bounds a path that may be read in several manners, in bytes: each takes its time.
const maxDoubtful = 1 << 10

// first returns the first route that matches a path that was read.
func (g *Gate) first(method, p string) string {
	for _, loosely := range []bool{false, true} {
		for i := range g.config.Routes {
			if r := &g.config.Routes[i]; r.takes(method, loosely) && matches(r.Path, p, loosely) {
				return r.Name
			}
		}
	}
	return DefaultRoute
}

func (r *Route) takes(method string, loosely bool) bool {
	if loosely {
		method = strings.ToUpper(method)
		if method == "HEAD" && slices.Contains(r.Methods, "GET") {
			return true
		}
	}
	return len(r.Methods) == 0 || slices.Contains(r.Methods, method)
}

// manner is how a service may read a path.
type manner struct {
	whole  bool // decoded before it is split: %2F separates
	back   bool // \ separates
	params bool // what follows a ; in a segment is left out
	dots   int  // . and .. are resolved: never, as they stand, also in escapes
}

// manners are all there are.
var manners = func() (all []manner) {
	for i := range 24 {
		all = append(all, manner{whole: i&1 > 0, back: i&2 > 0, params: i&4 > 0, dots: i / 8})
	}
	return all
}()

// differ says in what manners reading p may differ.
func differ(p string) (most manner) {
	escapes := ""
	if strings.Contains(p, "%") {
		escapes = strings.ToUpper(p)
	}
	has := func(mark, escape string) bool { return strings.Contains(p, mark) || strings.Contains(escapes, escape) }
	most.back, most.params = has(`\`, "%5C"), has(";", "%3B")
	some := most.back || most.params || strings.Contains(escapes, "%2F")
	if has("/.", "%2E") || some && strings.Contains(p, ".") {
		most.dots = 2
	}
	most.whole = escapes != "" && (some || most.dots > 0)
	return most
}

// within reports whether m differs from the zero manner only in what most does.
func (m manner) within(most manner) bool {
	return (!m.whole || most.whole) && (!m.back || most.back) && (!m.params || most.params) && m.dots <= most.dots
}

// text stands for a segment that is text and no pattern's: it matches * alone.
const text = "\x00"

// read returns the path in clean form.
func (m manner) read(p string) string {
	if m.whole {
		p = decode(p)
	}
	if m.back {
		p = strings.ReplaceAll(p, `\`, "/")
	}
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if m.params {
			s, _, _ = strings.Cut(s, ";")
		}
		stands := isDots(s)
		if !m.whole {
			s = decode(s)
		}
		if strings.Contains(s, "/") || isDots(s) && (m.dots == 0 || m.dots == 1 && !stands) {
			s = text
		}
		segments[i] = s
	}
	return path.Clean("/" + strings.Join(segments, "/"))
}

func isDots(s string) bool { return s == "." || s == ".." }

func decode(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}

func matches(pattern, p string, loosely bool) bool {
	for {
		want, patternRest, morePattern := strings.Cut(pattern, "/")
		if want == "**" {
			return true
		}
		got, rest, more := strings.Cut(p, "/")
		if want != got && (want != "*" || got == "") && (!loosely || !strings.EqualFold(want, got)) {
			return false
		}
		if !morePattern || !more {
			return !more && (!morePattern || patternRest == "**")
		}
		pattern, p = patternRest, rest
	}
}

func validPattern(pattern string) bool {
	if !strings.HasPrefix(pattern, "/") || pattern != path.Clean(pattern) {
		return false
	}
	segments := strings.Split(pattern[1:], "/")
	for i, s := range segments {
		if strings.Contains(s, "*") && s != "*" && (s != "**" || i != len(segments)-1) {
			return false
		}
	}
	return true
}
