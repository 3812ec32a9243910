package server

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
)

// fixed are the settings that need a restart, by their names in the file.
var fixed = []struct {
	name string
	same func(a, b *Config) bool
}{
	{"server.listen", func(a, b *Config) bool { return a.Listen == b.Listen }},
	{"server.tls", func(a, b *Config) bool { return a.Cert == b.Cert && a.Key == b.Key }},
	{"server.admin_key", func(a, b *Config) bool { return a.AdminKey == b.AdminKey }},
	{"server.stop_grace", func(a, b *Config) bool { return a.StopGrace == b.StopGrace }},
	{"server.max_body", func(a, b *Config) bool { return a.MaxBody == b.MaxBody }},
	{"server.open_metrics", func(a, b *Config) bool { return a.OpenMetrics == b.OpenMetrics }},
	{"server.frames", func(a, b *Config) bool { return slices.Equal(a.Frames, b.Frames) }},
	{"nats.", func(a, b *Config) bool { return reflect.DeepEqual(a.Cluster, b.Cluster) }},
	{"server.metrics_top", func(a, b *Config) bool { return a.MetricsTop == b.MetricsTop }},
	{"server.operator", func(a, b *Config) bool { return a.Operator == b.Operator }},
	{"data.dir", func(a, b *Config) bool { return a.Dir == b.Dir }},
	{"data.max_bytes", func(a, b *Config) bool { return a.MaxBytes == b.MaxBytes }},
	{"data.ballast", func(a, b *Config) bool { return a.Ballast == b.Ballast }},
	{"data.secret_key", func(a, b *Config) bool { return bytes.Equal(a.SecretKey, b.SecretKey) }},
	{"data.previous_secret_keys", func(a, b *Config) bool { return slices.EqualFunc(a.PreviousKeys, b.PreviousKeys, bytes.Equal) }},
	{"retention.history", func(a, b *Config) bool { return a.History == b.History }},
	{"delivery.network.nat64", func(a, b *Config) bool { return slices.Equal(a.NAT64, b.NAT64) }},
	{"delivery.network.proxy", func(a, b *Config) bool { return a.Proxy == b.Proxy && a.ProxyUser == b.ProxyUser }},
	{"delivery.tls", func(a, b *Config) bool { return a.ClientCert == b.ClientCert && a.ClientKey == b.ClientKey }},
}

// Reload puts into force what can change while the service runs: capacity, tiers, retries, budgets,
// breakers, timeouts, allowed addresses, envelopes, how long dead letters are kept. All of it is
// checked before any is; an error changes nothing. restart names what c changes and only a restart
// will: those settings stay as they are. What neither the file nor a flag says (Logger, Observe,
// Sender) is not looked at.
func (r *Running) Reload(c Config) (restart []string, err error) {
	r.reload.Lock()
	defer r.reload.Unlock()
	c = c.withDefaults()
	for _, f := range fixed {
		if !f.same(&r.config, &c) {
			restart = append(restart, f.name)
		}
	}
	tiers := r.allTiers(c.Tiers)
	gate, err := gateOf(tiers)
	if err != nil {
		return nil, fmt.Errorf("server: nothing was changed: %w", err)
	}
	was := r.config.Allow
	r.allow(inBoth(was, c.Allow)) // before the fan-out frees what would go to an address that is closed now
	err = r.fanout.Reconfigure(c.settings(tiers))
	if err != nil {
		r.allow(was)
		return nil, fmt.Errorf("server: nothing was changed: %w", err)
	}
	r.allow(c.Allow)
	r.server.setTiers(tiers, gate)
	r.config.Engine, r.config.Profile, r.config.Tiers, r.config.KeepDead, r.config.Envelopes, r.config.Allow =
		c.Engine, c.Profile, c.Tiers, c.KeepDead, c.Envelopes, c.Allow
	return restart, nil
}

// inBoth are the prefixes that stand in both lists.
func inBoth(a, b []netip.Prefix) (both []netip.Prefix) {
	for _, p := range a {
		if slices.Contains(b, p) {
			both = append(both, p)
		}
	}
	return both
}
