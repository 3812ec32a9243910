package admit

import (
	"path"
	"slices"
	"strings"
)

// Route returns the name of the first route that matches, or DefaultRoute. The
// path is the decoded one, without a query. It is cleaned first: //a/./b/ is
// /a/b. In a pattern * stands for one segment, and ** at the end for any that
// follow, none included.
func (g *Gate) Route(method, p string) string {
	p = path.Clean("/" + p)
	for i := range g.config.Routes {
		r := &g.config.Routes[i]
		if (len(r.Methods) == 0 || slices.Contains(r.Methods, method)) && matches(r.Path, p) {
			return r.Name
		}
	}
	return DefaultRoute
}

func matches(pattern, p string) bool {
	for {
		want, patternRest, morePattern := strings.Cut(pattern, "/")
		if want == "**" {
			return true
		}
		got, rest, more := strings.Cut(p, "/")
		if want != got && (want != "*" || got == "") {
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
