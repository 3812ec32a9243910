package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/fairlane-dev/fairlane/internal/envelope"
	"github.com/fairlane-dev/fairlane/limit"
)

// field is one leaf of the file: where it stands, what it means, and how it is read and
// shown. The table of fields is the schema: reading, ranges, print-out and error messages
// all come from it.
type field struct {
	path   string // dotted
	about  string
	rule   string // what is accepted; completes "must be"
	secret bool   // what was found is not repeated in errors
	read   func(ast.Node) bool
	show   func() string // YAML; "" leaves it out
}

// schema binds the fields to c. Tiers are bound by name: the order is that of names.
func schema(c *Config, env Env) []field {
	s, d, n, e := &c.Server, &c.Data, &c.NATS, &c.Delivery
	fs := []field{
		text("server.listen", "address of the API", "host:port", isHostPort, &s.Listen),
		text("server.tls.cert", "certificate chain, PEM file", "a file name", notEmpty, &s.Cert),
		text("server.tls.key", "its private key, PEM file", "a file name", notEmpty, &s.Key),
		secret("server.admin_key", "key of the admin API, at least 16 characters", env, isAdminKey, &s.AdminKey),
		duration("server.stop_grace", "how long requests in flight may finish at a stop", 0, time.Hour, &s.StopGrace),
		size("server.max_body", "greatest payload of a trigger", 1, 6<<20, &s.MaxBody),
		text("server.operator", "tenant whose subscriptions to fairlane.* hear of every tenant's events; none if absent", `1 to 128 letters, digits and . _ : @ -, or ""`, isTenantOrNone, &s.Operator),
		boolean("server.open_metrics", "GET /metrics without a key", &s.OpenMetrics),
		origins("server.frames", "sites that may show a tenant's page, opened by a signed link, in a frame", &s.Frames),
		whole("server.metrics_top", "lanes and tenants with series of their own, by traffic, by saturation and by rejections; 0 is none", 0, 200, ref(&s.MetricsTop)),

		text("data.dir", "directory of the log", "a directory name", notEmpty, &d.Dir),
		size("data.max_bytes", "size of the log on disk", 160<<20, 64<<40, &d.MaxBytes),
		size("data.ballast", "kept aside for a full disk; 0B is none", 0, 1<<40, &d.Ballast),
		secret("data.secret_key", "encrypts signing secrets; 32 bytes, base64. Not set: made and kept in data.dir", env, isKey32, &d.SecretKey),
		secrets("data.previous_secret_keys", "keys that data.secret_key has replaced; what they encrypted is encrypted anew at start", env, isKey32, &d.Previous),

		texts("nats.urls", "an external NATS cluster that holds the log; absent: it is embedded", "nats://host:port or tls://host:port, without user and password", isNATS, &n.URLs),
		text("nats.credentials", "credentials file", "a file name", notEmpty, &n.Credentials),
		text("nats.user", "instead of credentials", "a name", notEmpty, &n.User),
		secret("nats.password", "of nats.user", env, notEmpty, &n.Password),
		text("nats.tls.ca", "authorities that vouch for the servers, PEM file; absent: the system's", "a file name", notEmpty, &n.CA),
		text("nats.tls.cert", "certificate that is shown to them, PEM file", "a file name", notEmpty, &n.Cert),
		text("nats.tls.key", "its private key, PEM file", "a file name", notEmpty, &n.Key),
		whole("nats.replicas", "servers that hold each message", 1, 5, ref(&n.Replicas)),
		boolean("nats.few_replicas", "accept fewer than three: one lost server may lose what was acknowledged", &n.Few),

		duration("retention.history", "triggers kept for resends", 0, 3650*day, &c.Retention.History),
		duration("retention.dead", "dead letters kept", time.Hour, 3650*day, &c.Retention.Dead),

		whole("capacity.slots", "requests in flight on the whole platform", 1, 1_000_000, ref(&c.Slots)),

		duration("delivery.timeout", "of one request, whole", 10*time.Millisecond, 10*time.Minute, &e.Timeout),
		whole("delivery.retry.quick.attempts", "quick attempts, the first included", 1, 20, ref(&e.QuickAttempts)),
		duration("delivery.retry.quick.base", "full jitter: uniform(0, base * 2^n)", time.Millisecond, time.Minute, &e.QuickBase),
		durations("delivery.retry.slow", "then one attempt after each, plus or minus 20 %; the last repeats", time.Second, 7*day, &e.Slow),
		duration("delivery.retry.horizon", "age at which a delivery dies", time.Second, 365*day, &e.Horizon),
		ratio("delivery.budget.ratio", "retries per success", 0.001, 10, &e.BudgetRatio),
		duration("delivery.budget.half_life", "decay of both", time.Second, time.Hour, &e.HalfLife),
		whole("delivery.breaker.consecutive", "failures in a row that open it", 1, 10_000, ref(&e.Consecutive)),
		duration("delivery.breaker.open", "first interval between probes", time.Second, day, &e.Open),
		duration("delivery.breaker.open_max", "the interval doubles up to this", time.Second, day, &e.OpenMax),
		prefixes("delivery.network.allow", "addresses that endpoints may have besides public ones", "a list of addresses or prefixes such as 10.0.0.0/8", isAnyPrefix, &e.Allow),
		prefixes("delivery.network.nat64", "the network's own NAT64 prefixes: an address in one is judged by the IPv4 address in it", "a list of IPv6 prefixes of 32, 40, 48, 56, 64 or 96 bits (RFC 6052), whose ninth byte is 0", isNAT64, &e.NAT64),
		text("delivery.network.proxy", "egress proxy, which must refuse addresses inside; sends directly if absent", `http://host:port, or ""`, isProxy, &e.Proxy),
		secret("delivery.network.proxy_user", "user and password of the proxy, user:password", env, isUser, &e.ProxyUser),
		text("delivery.tls.cert", "certificate shown to endpoints that ask for one, PEM file", "a file name", notEmpty, &e.Cert),
		text("delivery.tls.key", "its private key, PEM file", "a file name", notEmpty, &e.Key),
	}
	for _, name := range sortedKeys(c.Envelopes) {
		fs = append(fs, envelopeFields(name, c.Envelopes[name])...)
	}
	for _, name := range sortedKeys(c.Tiers) {
		fs = append(fs, tierFields(name, c.Tiers[name])...)
	}
	return fs
}

// tierFields binds the fields of one tier.
func tierFields(name string, t *Tier) []field {
	at, in := "tiers."+name+".", &t.Inbound
	return []field{
		whole(at+"weight", "share of capacity relative to other tenants", 1, 1000, ref(&t.Weight)),
		rate(at+"rate", "attempts to one subscription; 0 is paused", &t.Rate),
		optional(whole(at+"burst", "at once, from a full bucket; one second's worth if absent", 1, 1e9, ref(&t.Burst))),
		whole(at+"cap", "requests in flight to one subscription", 1, 100_000, ref(&t.Cap)),
		optional(whole(at+"cap_auto.min", "the service sets caps by what it measures, for subscriptions without one of their own: from this", 1, 100_000, ref(&t.CapAuto.Min))),
		optional(whole(at+"cap_auto.max", "to this; not at all if absent", 1, 100_000, ref(&t.CapAuto.Max))),
		size(at+"backlog", "payload bytes a tenant may have parked and dead", 1<<20, 64<<40, &t.Backlog),
		whole(at+"subscriptions", "that a tenant may have; ten times as many may it make in its life", 1, 1_000_000, ref(&t.Subscriptions)),
		rate(at+"inbound.rate", "triggers that a tenant may post with its own keys", &in.Rate),
		optional(whole(at+"inbound.burst", "at once", 1, 1e9, ref(&in.Burst))),
		optional(whole(at+"inbound.share", "posts for a tenant that are handed to the log at once, before others' turns; of 64 in all", 1, 100_000, ref(&in.Share))),
	}
}

// envelopeFields binds the fields of one envelope.
func envelopeFields(name string, e *Envelope) []field {
	at := "envelopes." + name + "."
	return []field{
		text(at+"schema", "version of what the template makes, sent as Fairlane-Schema", "1 to 64 of A-Z a-z 0-9 . _ / -", notEmpty, &e.Schema),
		text(at+"content_type", "media type of what it makes; application/json if absent", "a media type", notEmpty, &e.ContentType),
		text(at+"template", "the body", "text with "+strings.Join(envelope.Placeholders, " "), notEmpty, &e.Template),
	}
}

// optional leaves a number out of the print-out while it is 0.
func optional(f field) field {
	show := f.show
	f.show = func() string {
		if s := show(); s != "0" {
			return s
		}
		return ""
	}
	return f
}

var tierName = regexp.MustCompile(`\A[a-z0-9][a-z0-9_-]{0,63}\z`)

// number is a whole number that is read and written through its owner.
type number struct {
	get func() int64
	set func(int64)
}

func ref[T int | int64](p *T) number {
	return number{func() int64 { return int64(*p) }, func(v int64) { *p = T(v) }}
}

func text(path, about, what string, ok func(string) bool, to *string) field {
	return field{path: path, about: about, rule: what,
		read: func(n ast.Node) bool {
			s, is := stringOf(n)
			if !is || !ok(s) {
				return false
			}
			*to = s
			return true
		},
		show: func() string { return quoted(*to) },
	}
}

func boolean(path, about string, to *bool) field {
	return field{path: path, about: about, rule: "true or false",
		read: func(n ast.Node) bool {
			b, is := n.(*ast.BoolNode)
			if is {
				*to = b.Value
			}
			return is
		},
		show: func() string { return strconv.FormatBool(*to) },
	}
}

func whole(path, about string, from, to int64, v number) field {
	return field{path: path, about: about, rule: fmt.Sprintf("a whole number from %d to %d", from, to),
		read: func(n ast.Node) bool {
			i, is := intOf(n)
			if !is || i < from || i > to {
				return false
			}
			v.set(i)
			return true
		},
		show: func() string { return strconv.FormatInt(v.get(), 10) },
	}
}

func ratio(path, about string, from, to float64, v *float64) field {
	return field{path: path, about: about, rule: fmt.Sprintf("a number from %v to %v", from, to),
		read: func(n ast.Node) bool {
			f, is := floatOf(n)
			if !is || !(f >= from && f <= to) {
				return false
			}
			*v = f
			return true
		},
		show: func() string { return strconv.FormatFloat(*v, 'f', -1, 64) },
	}
}

func duration(path, about string, from, to time.Duration, v *time.Duration) field {
	return field{path: path, about: about,
		rule: fmt.Sprintf("a duration with a unit (15s, 5m, 2h, 3d) from %s to %s", FormatDuration(from), FormatDuration(to)),
		read: func(n ast.Node) bool {
			d, is := durationOf(n)
			if !is || d < from || d > to {
				return false
			}
			*v = d
			return true
		},
		show: func() string { return FormatDuration(*v) },
	}
}

const maxList = 64

func durations(path, about string, from, to time.Duration, v *[]time.Duration) field {
	return field{path: path, about: about,
		rule: fmt.Sprintf("a list of 1 to %d durations with a unit from %s to %s", maxList, FormatDuration(from), FormatDuration(to)),
		read: func(n ast.Node) bool {
			var ds []time.Duration
			ok := each(n, func(n ast.Node) bool {
				d, is := durationOf(n)
				ds = append(ds, d)
				return is && d >= from && d <= to
			})
			if ok && len(ds) > 0 {
				*v = ds
				return true
			}
			return false
		},
		show: func() string { return list(*v, FormatDuration) },
	}
}

func size(path, about string, from, to int64, v *int64) field {
	return field{path: path, about: about,
		rule: fmt.Sprintf("a size with a unit (20GiB, 512MiB, 64KiB, 100B) from %s to %s", FormatSize(from), FormatSize(to)),
		read: func(n ast.Node) bool {
			s, is := stringOf(n)
			b, err := ParseSize(s)
			if !is || err != nil || b < from || b > to {
				return false
			}
			*v = b
			return true
		},
		show: func() string { return FormatSize(*v) },
	}
}

func rate(path, about string, v *string) field {
	return field{path: path, about: about, rule: `a rate such as 100/s or 10/m, the word unlimited, or 0 for paused`,
		read: func(n ast.Node) bool {
			s, is := stringOf(n)
			if i, number := intOf(n); number && i == 0 {
				s, is = "0", true
			}
			if !is {
				return false
			}
			_, err := limit.ParseRate(s, 1)
			if err == nil {
				*v = s
			}
			return err == nil
		},
		show: func() string { return *v },
	}
}

func prefixes(path, about, what string, fits func(netip.Prefix) bool, v *[]netip.Prefix) field {
	return field{path: path, about: about, rule: what,
		read: func(n ast.Node) bool {
			var ps []netip.Prefix
			ok := each(n, func(n ast.Node) bool {
				s, is := stringOf(n)
				p, err := parsePrefix(s)
				ps = append(ps, p)
				return is && err == nil && fits(p)
			})
			if ok {
				*v = ps
			}
			return ok
		},
		show: func() string { return list(*v, func(p netip.Prefix) string { return strconv.Quote(p.String()) }) },
	}
}

// texts is a list of texts that are all ok; an empty one stays out of the print-out.
func texts(path, about, what string, ok func(string) bool, v *[]string) field {
	return field{path: path, about: about, rule: fmt.Sprintf("a list of 1 to %d: %s", maxList, what), secret: true,
		read: func(n ast.Node) bool {
			var all []string
			good := each(n, func(n ast.Node) bool {
				s, is := stringOf(n)
				all = append(all, s)
				return is && ok(s)
			})
			if good && len(all) > 0 {
				*v = all
			}
			return good && len(all) > 0
		},
		show: func() string {
			if len(*v) == 0 {
				return ""
			}
			return list(*v, strconv.Quote)
		},
	}
}

func isAnyPrefix(netip.Prefix) bool { return true }

// isNAT64 reports whether p may be a translation prefix by RFC 6052 2.2.
func isNAT64(p netip.Prefix) bool {
	return p.Addr().Is6() && !p.Addr().Is4In6() && slices.Contains([]int{32, 40, 48, 56, 64, 96}, p.Bits()) && p.Addr().As16()[8] == 0
}

func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err == nil && p != p.Masked() {
		return p, fmt.Errorf("%s has bits beyond its length", s)
	}
	return p, err
}

var reference = regexp.MustCompile(`\A\$\{([A-Za-z_][A-Za-z0-9_]*)\}\z`)

// resolve reads "${NAME}"; the variable must be set.
func resolve(s string, env Env) (Secret, bool) {
	m := reference.FindStringSubmatch(s)
	if m == nil {
		return Secret{}, false
	}
	v, set := env(m[1])
	return Secret{Name: m[1], value: v}, set
}

func secret(path, about string, env Env, ok func(string) bool, to *Secret) field {
	return field{path: path, about: about, secret: true,
		rule: "${NAME}, the whole value, with NAME set in the environment to a fitting value",
		read: func(n ast.Node) bool {
			s, _ := stringOf(n)
			v, is := resolve(s, env)
			if !is || !ok(v.value) {
				return false
			}
			*to = v
			return true
		},
		show: func() string {
			if to.Name == "" {
				return ""
			}
			return to.String()
		},
	}
}

// secrets is a list of what secret reads.
func secrets(path, about string, env Env, ok func(string) bool, to *[]Secret) field {
	return field{path: path, about: about, secret: true,
		rule: "a list of ${NAME}, each with NAME set in the environment to a fitting value",
		read: func(n ast.Node) bool {
			var found []Secret
			good := each(n, func(n ast.Node) bool {
				s, _ := stringOf(n)
				v, is := resolve(s, env)
				found = append(found, v)
				return is && ok(v.value)
			})
			if good {
				*to = found
			}
			return good
		},
		show: func() string {
			if len(*to) == 0 {
				return ""
			}
			return list(*to, func(s Secret) string { return quoted(s.String()) })
		},
	}
}

func list[T any](v []T, show func(T) string) string {
	s := make([]string, len(v))
	for i, x := range v {
		s[i] = show(x)
	}
	return "[" + strings.Join(s, ", ") + "]"
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func origins(path, about string, v *[]string) field {
	return field{path: path, about: about, rule: "a list of origins such as https://console.example.com",
		read: func(n ast.Node) bool {
			var all []string
			ok := each(n, func(n ast.Node) bool {
				s, is := stringOf(n)
				all = append(all, s)
				return is && isOrigin(s)
			})
			if ok {
				*v = all
			}
			return ok
		},
		show: func() string { return list(*v, strconv.Quote) },
	}
}
