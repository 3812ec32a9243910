package config

import (
	"encoding/base64"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/fairlane-dev/fairlane/internal/envelope"
	"github.com/fairlane-dev/fairlane/limit"
)

// check applies the rules that join several fields, after each is right by itself.
func (r *reader) check() {
	c := r.config
	if (c.Server.Cert == "") != (c.Server.Key == "") {
		r.at("server.tls", "needs both cert and key")
	}
	r.checkNATS(&c.NATS)
	if (c.Delivery.Cert == "") != (c.Delivery.Key == "") {
		r.at("delivery.tls", "needs both cert and key")
	}
	if c.Delivery.Proxy == "" && c.Delivery.ProxyUser.Name != "" {
		r.at("delivery.network.proxy_user", "needs delivery.network.proxy")
	}
	if len(c.Data.Previous) > 0 && c.Data.SecretKey.Name == "" {
		r.at("data.previous_secret_keys", "needs data.secret_key")
	}
	for _, name := range sortedKeys(c.Envelopes) {
		e := c.Envelopes[name]
		if _, err := envelope.New(e.Schema, e.ContentType, e.Template); err != nil {
			field, rule, _ := strings.Cut(err.Error(), ": ")
			r.at("envelopes."+name+"."+field, rule)
		}
	}
	if c.Delivery.OpenMax < c.Delivery.Open {
		r.at("delivery.breaker.open_max", "must be at least delivery.breaker.open ("+FormatDuration(c.Delivery.Open)+")")
	}
	for _, name := range sortedKeys(c.Tiers) {
		r.checkTier("tiers."+name, c.Tiers[name])
	}
}

func (r *reader) checkNATS(n *NATS) {
	if len(n.URLs) == 0 {
		if n.Credentials+n.User+n.Password.Name+n.CA+n.Cert+n.Key != "" || n.Few || n.Replicas != 3 {
			r.at("nats", "needs urls")
		}
		return
	}
	if n.Replicas < 3 && !n.Few {
		r.at("nats.replicas", "must be at least 3, unless nats.few_replicas is true: with fewer, one lost server loses what was acknowledged")
	}
	if (n.Cert == "") != (n.Key == "") {
		r.at("nats.tls", "needs both cert and key, or neither")
	}
	if (n.User == "") != (n.Password.Name == "") {
		r.at("nats.user", "needs nats.password, and the other way round")
	}
}

func (r *reader) checkTier(at string, t *Tier) {
	r.checkRate(at, t.Rate, &t.Burst)
	if t.CapAuto.Max < t.CapAuto.Min {
		r.at(at+".cap_auto.max", "must be at least cap_auto.min")
	}
	if t.Inbound.Rate == "" && t.Inbound.Burst != 0 {
		r.at(at+".inbound.burst", "needs inbound.rate")
	}
	r.checkRate(at+".inbound", t.Inbound.Rate, &t.Inbound.Burst)
}

// checkRate fills the burst of a rate and holds the pair against the bucket's ranges.
func (r *reader) checkRate(at, rate string, burst *int64) {
	if rate == "" {
		return
	}
	one, err := limit.ParseRate(rate, 1)
	if err != nil || one.OneSecond() == 0 {
		if *burst != 0 {
			r.at(at+".burst", "needs a rate that is a number; it is "+rate)
		}
		return
	}
	if *burst == 0 {
		*burst = one.OneSecond()
	}
	if _, err := limit.ParseRate(rate, *burst); err != nil {
		r.at(at+".rate", "does not fit its burst of "+strconv.FormatInt(*burst, 10)+": "+err.Error())
	}
}

func notEmpty(s string) bool { return s != "" && len(s) < 4096 }

// isProxy takes an http URL of a host and a port, and nothing more of one.
func isProxy(s string) bool {
	addr, ok := strings.CutPrefix(s, "http://")
	host, _, err := net.SplitHostPort(addr)
	return s == "" || ok && err == nil && host != "" && isHostPort(addr) && !strings.ContainsAny(addr, "/?#@")
}

func isUser(s string) bool {
	user, _, ok := strings.Cut(s, ":")
	return ok && user != "" && len(s) <= 512 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func isHostPort(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func isNATS(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "nats" || u.Scheme == "tls") && u.User == nil && isHostPort(u.Host) && u.Hostname() != "" && u.Path == "" && u.RawQuery == "" && u.Fragment == ""
}

func isAdminKey(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) >= 16 && len(s) <= 512
}

func isKey32(s string) bool {
	b, err := base64.StdEncoding.DecodeString(s)
	return err == nil && len(b) == 32
}

var tenantForm = regexp.MustCompile(`\A([A-Za-z0-9_][A-Za-z0-9._:@-]{0,127})?\z`)

func isTenantOrNone(s string) bool { return tenantForm.MatchString(s) }
