// Package policyfile reads the file of `fairlane gate`: where it listens and
// forwards to, who callers are, tiers, routes, policies and slots.
//
// The file is YAML and strict. It is refused whole, with all that is wrong, each
// with line, field and rule. 0 means none or paused; unlimited is a word;
// durations carry a unit; secrets are ${NAME} and come from the environment.
package policyfile

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/fair"
	"github.com/fairlane-dev/fairlane/internal/strictyaml"
	"github.com/fairlane-dev/fairlane/limit"
)

// File is what a policy file says, checked.
type File struct {
	Listen, Admin string   // host:port; Admin "": none
	Upstream      *url.URL // nil: only /check is served
	Timeout       time.Duration
	StopGrace     time.Duration

	Identity    Identity
	Proxies     admit.Proxies
	Redis       Redis
	Tenants     map[string]string // tenant to tier
	DefaultTier string
	Gate        *admit.Gate
	Keys        int // counters that are kept

	Slots       fair.SlotLimits
	Wait, Stall time.Duration

	Draft  string
	Older  bool
	Spread time.Duration

	Warnings Problems
}

// Identity says what credentials there are.
type Identity struct {
	KeyFile, KeyHeader       string
	JWTKeys, JWKS            string // a file or an address
	Tenant, User, Tier       string // claims
	Issuer, Audience         string
	Domain, Agree, Anonymous string
}

// Redis is the shared store; URL "": none.
type Redis struct {
	URL, Prefix string
	Deadline    time.Duration
	Replicas    int64
}

// Load reads the file at path. Its error is a Problems if the content is wrong. A
// nil env is the process's environment.
func Load(path string, env Env) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	return Parse(path, data, env)
}

// Parse reads data; name stands for the file in errors.
func Parse(name string, data []byte, env Env) (*File, error) {
	if env == nil {
		env = os.LookupEnv
	}
	r := &reader{Reader: strictyaml.Reader{File: name}, env: env}
	f := &File{}
	if top := r.root(data); top != nil {
		f.read(r, top)
	}
	if len(r.Problems) > 0 {
		return nil, r.Sorted()
	}
	return f, nil
}

func (f *File) read(r *reader, top *section) {
	*f = File{Listen: ":8081", StopGrace: 20 * time.Second, Timeout: time.Minute, Tenants: map[string]string{}, Keys: 100_000, Draft: "draft-11"}
	top.text("listen", "host:port", &f.Listen, isHostPort)
	top.text("admin", "host:port", &f.Admin, isHostPort)
	top.duration("timeout", time.Millisecond, 24*time.Hour, &f.Timeout)
	top.duration("stop_grace", 0, time.Hour, &f.StopGrace)
	f.upstream(top)
	f.identity(top)
	f.proxies(top)
	f.redis(top)
	f.answers(top)
	tiers := readTiers(r, top)
	f.slots(r, top, tiers)
	f.gate(r, top, tiers)
	top.small("counters", 1, 100_000_000, &f.Keys)
	f.tenants(r, top, tiers)
	top.end()
}

func (f *File) upstream(top *section) {
	var s string
	if top.text("upstream", "http://host[:port] or https://host[:port], with a path or without", &s, isUpstream) {
		f.Upstream, _ = url.Parse(s) // was read by isUpstream
	}
}

func isUpstream(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

func isHostPort(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func (f *File) identity(top *section) {
	s, _ := top.sub("identity")
	id := &f.Identity
	s.text("keys", "a file name", &id.KeyFile, notEmpty)
	s.text("key_header", "a header's name", &id.KeyHeader, isToken)
	s.text("domain", "a domain", &id.Domain, notEmpty)
	s.text("agree", "a header's name", &id.Agree, isToken)
	s.text("anonymous", "the name of a tier", &id.Anonymous, admit.IsName)
	if jwt, stands := s.sub("jwt"); stands {
		jwt.text("keys", "a file name", &id.JWTKeys, notEmpty)
		jwt.text("jwks", "http(s)://...", &id.JWKS, isUpstream)
		jwt.text("tenant", "a claim's name", &id.Tenant, notEmpty)
		jwt.text("user", "a claim's name", &id.User, notEmpty)
		jwt.text("tier", "a claim's name", &id.Tier, notEmpty)
		jwt.text("issuer", "what iss must be", &id.Issuer, notEmpty)
		jwt.text("audience", "what aud must hold", &id.Audience, notEmpty)
		jwt.end()
		if (id.JWTKeys == "") == (id.JWKS == "") {
			top.r.At("identity.jwt", "needs keys (a file) or jwks (an address), one of them")
		}
	}
	s.end()
	if id.KeyFile == "" && id.JWTKeys == "" && id.JWKS == "" && id.Anonymous == "" {
		top.r.At("identity", "must say who callers are: keys, jwt, or the tier of anonymous ones")
	}
}

func isToken(s string) bool {
	return notEmpty(s) && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

func (f *File) proxies(top *section) {
	s, _ := top.sub("proxies")
	s.prefixes("trusted", "a list of addresses or prefixes such as 10.0.0.0/8", &f.Proxies.Trusted, func(netip.Prefix) bool { return true })
	s.prefixes("nat64", "a list of /96 prefixes such as 64:ff9b::/96", &f.Proxies.NAT64, func(p netip.Prefix) bool { return p.Bits() == 96 })
	s.end()
}

func (f *File) redis(top *section) {
	s, stands := top.sub("redis")
	if !stands {
		return
	}
	f.Redis = Redis{Deadline: 25 * time.Millisecond, Replicas: 1}
	s.secret("url", &f.Redis.URL)
	s.text("prefix", "a word", &f.Redis.Prefix, isToken)
	s.duration("deadline", time.Millisecond, 10*time.Second, &f.Redis.Deadline)
	s.whole("replicas", 1, 10_000, &f.Redis.Replicas)
	s.end()
	if _, ok := s.nodes["url"]; !ok {
		top.r.At("redis", "needs url")
	}
}

func (f *File) answers(top *section) {
	s, _ := top.sub("headers")
	s.text("draft", "one of "+strings.Join(drafts, ", ")+", or none", &f.Draft, func(d string) bool { return slices.Contains(drafts, d) || d == "none" })
	if f.Draft == "none" {
		f.Draft = ""
	}
	s.flag("older", &f.Older)
	s.duration("spread", 0, time.Hour, &f.Spread)
	s.end()
}

// drafts are httpadmit.Drafts, which this package does not import.
var drafts = []string{"draft-08", "draft-09", "draft-10", "draft-11"}

// tier is a tier as it stands in the file: its rate is for policies that say so.
type tier struct {
	admit.Tier
	rate *admit.Spec // nil: unlimited
	has  bool        // a rate
}

func readTiers(r *reader, top *section) (tiers []tier) {
	s, stands := top.sub("tiers")
	if !stands {
		r.At("tiers", "must name at least one tier")
	}
	for _, name := range s.names {
		t := tier{Tier: admit.Tier{Name: name, Share: -1, Weight: 1}}
		in, _ := s.sub(name)
		in.small("share", 0, 1_000_000, &t.Share)
		in.small("weight", 1, 1000, &t.Weight)
		t.rate, t.has = readRate(in)
		in.end()
		tiers = append(tiers, t)
	}
	s.end()
	return tiers
}

// readRate reads rate and burst. A burst that is left out is one second's worth.
func readRate(s *section) (*admit.Spec, bool) {
	n, stands := s.node("rate")
	var burst int64
	asked := s.whole("burst", 1, limit.MaxTokens, &burst)
	if !stands {
		if asked {
			s.r.At(s.field("burst"), "needs rate")
		}
		return nil, false
	}
	text, is := textOf(n)
	if v, number := strictyaml.Whole(n); number && v == 0 {
		text, is = "0", true
	}
	if one, err := limit.ParseRate(text, 1); is && err == nil && !asked && !one.IsUnlimited() {
		burst = one.OneSecond()
	}
	rate, err := limit.ParseRate(text, max(burst, 1))
	switch {
	case !is || err != nil:
		rule := "must be a rate such as 100/s or 10/m, the word unlimited, or 0 for paused"
		if is {
			rule += ": " + err.Error()
		}
		s.r.At(s.field("rate"), rule+strictyaml.Found(n))
		return nil, false
	case rate.IsUnlimited():
		return nil, true
	}
	spec := admit.Bucket(rate)
	return &spec, true
}

func (f *File) slots(r *reader, top *section, tiers []tier) {
	s, stands := top.sub("slots")
	if !stands {
		for i := range tiers {
			tiers[i].Share = max(tiers[i].Share, 1) // not looked at
		}
		return
	}
	f.Slots = fair.SlotLimits{Queue: 100, Waiters: 10_000}
	f.Wait, f.Stall = time.Second, 30*time.Second
	if !s.small("total", 1, 1_000_000, &f.Slots.Slots) {
		r.At("slots.total", "must be a whole number from 1 to 1000000")
	}
	get(s, "policy", "work-conserving, hard or shared", &f.Slots.Mode, modeOf)
	s.small("queue", 0, 1_000_000, &f.Slots.Queue)
	s.small("waiters", 0, 10_000_000, &f.Slots.Waiters)
	s.duration("wait", 0, 10*time.Minute, &f.Wait)
	s.duration("stall", time.Second, time.Hour, &f.Stall)
	s.end()
	for _, t := range tiers {
		if t.Share < 0 {
			r.At("tiers."+t.Name, "lacks share: its slots at once, 0 for suspended")
		}
	}
}

func modeOf(n ast.Node) (fair.Mode, bool) {
	text, _ := textOf(n)
	for m := fair.WorkConserving; m <= fair.Shared; m++ {
		if m.String() == text {
			return m, true
		}
	}
	return 0, false
}

// tenants reads which tenant has which tier, and warns of shares that leave slots
// to nobody.
func (f *File) tenants(r *reader, top *section, tiers []tier) {
	known := map[string]int{}
	for _, t := range tiers {
		known[t.Name] = t.Share
	}
	s, _ := top.sub("tenants")
	sum := 0
	for _, name := range s.names {
		n, _ := s.node(name)
		t, _ := textOf(n)
		if _, ok := known[t]; !ok {
			r.At(s.field(name), "must name a tier of this file"+strictyaml.Found(n))
		}
		f.Tenants[name] = t
		sum += known[t]
	}
	s.end()
	top.text("default_tier", "the name of a tier", &f.DefaultTier, admit.IsName)
	for _, d := range []struct{ field, tier string }{{"default_tier", f.DefaultTier}, {"identity.anonymous", f.Identity.Anonymous}} {
		if _, ok := known[d.tier]; d.tier != "" && !ok {
			r.At(d.field, "must name a tier of this file")
		}
	}
	if f.Slots.Mode != fair.Shared && len(f.Tenants) > 0 && sum < f.Slots.Slots && f.DefaultTier == "" {
		f.Warnings = append(f.Warnings, r.warning("slots.total", fmt.Sprintf("the shares of all tenants sum to %d, below %d slots: the rest is nobody's", sum, f.Slots.Slots)))
	}
}
