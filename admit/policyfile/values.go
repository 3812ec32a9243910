package policyfile

import (
	"net/netip"
	"regexp"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/fairlane-dev/fairlane/internal/strictyaml"
)

// get reads one value with read, which reports whether it accepts it; rule
// completes "must be". It reports whether the key stands and is right.
func get[T any](s *section, key, rule string, to *T, read func(ast.Node) (T, bool)) bool {
	n, ok := s.node(key)
	if !ok {
		return false
	}
	v, ok := read(n)
	if !ok {
		s.r.At(s.field(key), "must be "+rule+strictyaml.Found(n))
		return false
	}
	*to = v
	return true
}

func (s *section) text(key, rule string, to *string, ok func(string) bool) bool {
	return get(s, key, rule, to, func(n ast.Node) (string, bool) {
		v, is := textOf(n)
		return v, is && ok(v)
	})
}

func textOf(n ast.Node) (string, bool) {
	if s, is := n.(*ast.StringNode); is {
		return s.Value, true
	}
	return "", false
}

func notEmpty(s string) bool { return s != "" && len(s) < 4096 }

func (s *section) flag(key string, to *bool) {
	get(s, key, "true or false", to, func(n ast.Node) (bool, bool) {
		b, is := n.(*ast.BoolNode)
		return is && b.Value, is
	})
}

func (s *section) whole(key string, from, most int64, to *int64) bool {
	rule := "a whole number from " + strconv.FormatInt(from, 10) + " to " + strconv.FormatInt(most, 10)
	return get(s, key, rule, to, func(n ast.Node) (int64, bool) {
		v, is := strictyaml.Whole(n)
		return v, is && v >= from && v <= most
	})
}

func (s *section) small(key string, from, most int64, to *int) bool {
	v := int64(*to)
	ok := s.whole(key, from, most, &v)
	*to = int(v)
	return ok
}

// duration reads "25ms", "1h30m", "7d": the unit is required.
func (s *section) duration(key string, from, most time.Duration, to *time.Duration) {
	rule := "a duration with a unit (25ms, 1s, 5m, 2h, 30d) from " + from.String() + " to " + most.String()
	get(s, key, rule, to, func(n ast.Node) (time.Duration, bool) {
		text, is := textOf(n)
		d, err := strictyaml.ParseDuration(text)
		return d, is && err == nil && d >= from && d <= most
	})
}

func (s *section) texts(key, rule string, to *[]string, ok func(string) bool) bool {
	return get(s, key, rule, to, func(n ast.Node) ([]string, bool) {
		return strictyaml.List(n, 256, func(n ast.Node) (string, bool) {
			t, is := textOf(n)
			return t, is && ok(t)
		})
	})
}

func (s *section) prefixes(key, rule string, to *[]netip.Prefix, ok func(netip.Prefix) bool) {
	var list []string
	if !s.texts(key, rule, &list, func(t string) bool { p, is := parsePrefix(t); return is && ok(p) }) {
		return
	}
	*to = nil
	for _, t := range list {
		p, _ := parsePrefix(t) // was read above
		*to = append(*to, p)
	}
}

func parsePrefix(s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	return p, err == nil && p == p.Masked()
}

// Env looks a variable up, as os.LookupEnv does.
type Env func(name string) (string, bool)

var reference = regexp.MustCompile(`\A\$\{([A-Za-z_][A-Za-z0-9_]*)\}\z`)

// secret reads ${NAME}, the whole value; what was found is not repeated in errors.
func (s *section) secret(key string, to *string) bool {
	n, ok := s.node(key)
	if !ok {
		return false
	}
	text, _ := textOf(n)
	m := reference.FindStringSubmatch(text)
	if m != nil {
		if v, set := s.r.env(m[1]); set && v != "" {
			*to = v
			return true
		}
	}
	s.r.At(s.field(key), "must be ${NAME}, the whole value, with NAME set in the environment")
	return false
}
