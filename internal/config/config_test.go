package config

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var key32 = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))

// vars is an environment.
func vars(name string) (string, bool) {
	v, ok := map[string]string{
		"FAIRLANE_SECRET_KEY": key32,
		"ADMIN":               "an-admin-key-of-length",
		"SHORT":               "short",
		"EMPTY":               "",
		"USER":                "user:password",
	}[name]
	return v, ok
}

const sample = `
server: {listen: ":9090", tls: {cert: c.pem, key: k.pem}}
data: {dir: ./d, max_bytes: 10GiB, secret_key: "${FAIRLANE_SECRET_KEY}"}   # TRIGGERS half
nats: {urls: ["tls://n1:4222", "tls://n2:4222"], user: fairlane, password: "${ADMIN}", tls: {ca: ca.pem, cert: n.pem, key: nk.pem}, replicas: 5}
retention: {history: 3d, dead: 30d}
capacity: {slots: 600}
delivery:
  timeout: 5s
  retry: {quick: {attempts: 3, base: 100ms}, slow: [1m, 5m], horizon: 3d}
  budget: {ratio: 0.2, half_life: 20s}
  breaker: {consecutive: 7, open: 10s, open_max: 5m}
  network: {allow: [127.0.0.1, 10.0.0.0/8, "fd00::/8"], nat64: ["64:ff9b:1::/48", "fd00:64::/96"], proxy: ""}
tiers:
  default: {weight: 2, rate: unlimited, cap: 8, backlog: 1GiB}
  pro: {weight: 3, rate: 100/s, burst: 500, cap: 32, backlog: 20GiB, inbound: {rate: 20/s, burst: 60, share: 6}, subscriptions: 5000}
  slow: {rate: 5/m}
  off:
    rate: 0
`

func TestTheSampleIsRead(t *testing.T) {
	c, err := Parse("f.yaml", []byte(sample), vars)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Server: Server{Listen: ":9090", Cert: "c.pem", Key: "k.pem", StopGrace: 20 * time.Second, MaxBody: 1 << 20, MetricsTop: 20},
		Data:   Data{Dir: "./d", MaxBytes: 10 << 30, Ballast: 256 << 20, SecretKey: Secret{"FAIRLANE_SECRET_KEY", key32}},
		NATS: NATS{URLs: []string{"tls://n1:4222", "tls://n2:4222"}, User: "fairlane", Password: Secret{"ADMIN", "an-admin-key-of-length"},
			CA: "ca.pem", Cert: "n.pem", Key: "nk.pem", Replicas: 5},
		Retention: Retention{3 * 24 * time.Hour, 30 * 24 * time.Hour},
		Slots:     600,
		Delivery: Delivery{
			Timeout: 5 * time.Second, QuickAttempts: 3, QuickBase: 100 * time.Millisecond,
			Slow: []time.Duration{time.Minute, 5 * time.Minute}, Horizon: 72 * time.Hour,
			BudgetRatio: 0.2, HalfLife: 20 * time.Second, Consecutive: 7, Open: 10 * time.Second, OpenMax: 5 * time.Minute,
			Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
			NAT64: []netip.Prefix{netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("fd00:64::/96")},
		},
		Tiers: map[string]*Tier{
			"default": {Weight: 2, Rate: "unlimited", Cap: 8, Backlog: 1 << 30, Subscriptions: 1000},
			"pro":     {Weight: 3, Rate: "100/s", Burst: 500, Cap: 32, Backlog: 20 << 30, Inbound: Inbound{"20/s", 60, 6}, Subscriptions: 5000},
			"slow":    {Weight: 1, Rate: "5/m", Burst: 1, Cap: 16, Backlog: 2 << 30, Subscriptions: 1000},
			"off":     {Weight: 1, Rate: "0", Cap: 16, Backlog: 2 << 30, Subscriptions: 1000},
		},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestNothingIsTheDefault(t *testing.T) {
	for _, s := range []string{"", "\n", "---\n", "# only a comment\n", "{}", "null"} {
		c, err := Parse("f", []byte(s), vars)
		if err != nil || !reflect.DeepEqual(c, Default()) {
			t.Errorf("%q: %v %+v", s, err, c)
		}
	}
}

// Field case 99.
// Field case 10.
func TestEveryMistakeIsRefusedWithLineFieldAndRule(t *testing.T) {
	for _, c := range []struct{ in, line, field, rule string }{
		{"rate_limt: 3", "1", "rate_limt", "is unknown; known here: capacity, data, delivery, envelopes, nats, retention, server, tiers"},
		{"limiter: {rate: 10/s}", "1", "limiter", "is unknown"},
		{"server:\n  listen: \":1\"\n  tiemout: 3s", "3", "server.tiemout", "is unknown; known here: admin_key, frames, listen"},
		{"capacity: {slots: 5}\ncapacity: {slots: 6}", "2", "capacity", "must stand once; it stands in line 1 too"},
		{"capacity: {slots: 5, slots: 6}", "1", "capacity.slots", "must stand once"},
		{"delivery: {timeout: 30}", "1", "delivery.timeout", `must be a duration with a unit`},
		{`delivery: {timeout: "30"}`, "1", "delivery.timeout", `found "30"`},
		{"delivery: {timeout: 0}", "1", "delivery.timeout", "unit"},
		{"server: {stop_grace: '0'}", "1", "server.stop_grace", "unit"},
		{"server: {stop_grace: '+0'}", "1", "server.stop_grace", "unit"},
		{"server: {stop_grace: ''}", "1", "server.stop_grace", "unit"},
		{"delivery: {timeout: -5s}", "1", "delivery.timeout", "from 10ms to 10m"},
		{"delivery: {timeout: 1e300s}", "1", "delivery.timeout", "unit"},
		{"delivery: {timeout: }", "1", "delivery.timeout", "found nothing (leave the key out for the default)"},
		{"delivery: {timeout: null}", "1", "delivery.timeout", "found nothing"},
		{"delivery: {timeout: ~}", "1", "delivery.timeout", "found nothing"},
		{"delivery: {timeout: [15s]}", "1", "delivery.timeout", "found a list"},
		{"delivery: {timeout: {s: 15}}", "1", "delivery.timeout", "found a mapping"},
		{"delivery: {timeout: 500000d}", "1", "delivery.timeout", "unit"},
		{"delivery:", "1", "delivery", "must be a mapping"},
		{"delivery: 5", "1", "delivery", "must be a mapping"},
		{"delivery: [a]", "1", "delivery", "must be a mapping"},
		{"- a", "1", "", "must be a mapping"},
		{"hello", "1", "", "must be a mapping"},
		{"data: {max_bytes: 20}", "1", "data.max_bytes", "must be a size with a unit"},
		{"data: {max_bytes: 20GB}", "1", "data.max_bytes", "GiB"},
		{"data: {max_bytes: 1.5GiB}", "1", "data.max_bytes", "GiB"},
		{"data: {max_bytes: 99999999999GiB}", "1", "data.max_bytes", "64TiB"},
		{"data: {max_bytes: 1MiB}", "1", "data.max_bytes", "from 160MiB"},
		{"server: {max_body: 7MiB}", "1", "server.max_body", "to 6MiB"},
		{"server: {max_body: 0B}", "1", "server.max_body", "from 1B"},
		{"server: {listen: 8080}", "1", "server.listen", "must be host:port"},
		{"server: {listen: \":99999\"}", "1", "server.listen", "must be host:port"},
		{"server: {open_metrics: yes}", "1", "server.open_metrics", "true or false"},
		{"server: {open_metrics: \"true\"}", "1", "server.open_metrics", "true or false"},
		{"server: {tls: {cert: a}}", "1", "server.tls", "needs both"},
		{"nats: {replicas: 5}", "1", "nats", "needs urls"},
		{"nats: {urls: []}", "1", "nats.urls", "a list of 1 to 64"},
		{"nats: {urls: [n1:4222]}", "1", "nats.urls", "nats://host:port"},
		{"nats: {urls: [\"nats://user:SECRET@n1:4222\"]}", "1", "nats.urls", "without user and password"},
		{"nats: {urls: [\"nats://n1:4222\"], replicas: 1}", "1", "nats.replicas", "must be at least 3, unless nats.few_replicas"},
		{"nats: {urls: [\"nats://n1:4222\"], replicas: 0}", "1", "nats.replicas", "from 1 to 5"},
		{"nats: {urls: [\"nats://n1:4222\"], tls: {cert: a}}", "1", "nats.tls", "both cert and key"},
		{"nats: {urls: [\"nats://n1:4222\"], user: a}", "1", "nats.user", "needs nats.password"},
		{"nats: {urls: [\"nats://n1:4222\"], password: a}", "1", "nats.password", "${NAME}"},
		{"capacity: {slots: 1.5}", "1", "capacity.slots", "must be a whole number"},
		{"capacity: {slots: \"5\"}", "1", "capacity.slots", "must be a whole number"},
		{"capacity: {slots: 0}", "1", "capacity.slots", "from 1 to 1000000"},
		{"capacity: {slots: -1}", "1", "capacity.slots", "from 1"},
		{"capacity: {slots: 99999999999999999999999}", "1", "capacity.slots", "from 1"},
		{"delivery: {budget: {ratio: .nan}}", "1", "delivery.budget.ratio", "must be a number"},
		{"delivery: {budget: {ratio: .inf}}", "1", "delivery.budget.ratio", "must be a number"},
		{"delivery: {budget: {ratio: 1e308}}", "1", "delivery.budget.ratio", "to 10"},
		{"delivery: {budget: {ratio: 0}}", "1", "delivery.budget.ratio", "from 0.001"},
		{"delivery: {retry: {slow: []}}", "1", "delivery.retry.slow", "a list of 1 to 64"},
		{"delivery: {retry: {slow: [1m, 5]}}", "1", "delivery.retry.slow", "durations with a unit"},
		{"delivery: {retry: {slow: 1m}}", "1", "delivery.retry.slow", "a list"},
		{"delivery: {breaker: {open: 20m}}", "1", "delivery.breaker.open_max", "must be at least delivery.breaker.open (20m)"},
		{"delivery: {network: {allow: [10.0.0.1/8]}}", "1", "delivery.network.allow", "prefixes"},
		{"delivery: {network: {allow: [localhost]}}", "1", "delivery.network.allow", "prefixes"},
		{"delivery: {network: {nat64: [\"fd00:64::/97\"]}}", "1", "delivery.network.nat64", "32, 40, 48, 56, 64 or 96 bits"},
		{"delivery: {network: {nat64: [\"fd00:64::/31\"]}}", "1", "delivery.network.nat64", "RFC 6052"},
		{"delivery: {network: {nat64: [\"fd00:64::\"]}}", "1", "delivery.network.nat64", "prefixes"},
		{"delivery: {network: {nat64: [\"fd00:64::1/96\"]}}", "1", "delivery.network.nat64", "prefixes"},
		{"delivery: {network: {nat64: [\"fd00:64:0:0:ff00::/96\"]}}", "1", "delivery.network.nat64", "ninth byte"},
		{"delivery: {network: {nat64: [10.0.0.0/32]}}", "1", "delivery.network.nat64", "IPv6"},
		{"delivery: {network: {nat64: [\"::ffff:0.0.0.0/96\"]}}", "1", "delivery.network.nat64", "IPv6"},
		{"delivery: {network: {proxy: \"https://p:1\"}}", "1", "delivery.network.proxy", "http://host:port"},
		{"delivery: {network: {proxy: \"http://u:SECRET@p:1\"}}", "1", "delivery.network.proxy", "http://host:port"},
		{"delivery: {network: {proxy: \"http://p\"}}", "1", "delivery.network.proxy", "http://host:port"},
		{"delivery: {network: {proxy_user: \"${ADMIN}\"}}", "1", "delivery.network.proxy_user", "fitting value"},
		{"delivery: {network: {proxy_user: \"${USER}\"}}", "1", "delivery.network.proxy_user", "needs delivery.network.proxy"},
		{"delivery: {tls: {cert: a.pem}}", "1", "delivery.tls", "needs both cert and key"},
		{"data: {previous_secret_keys: [\"${FAIRLANE_SECRET_KEY}\"]}", "1", "data.previous_secret_keys", "needs data.secret_key"},
		{"data: {secret_key: \"${FAIRLANE_SECRET_KEY}\", previous_secret_keys: [\"${SHORT}\"]}", "1", "data.previous_secret_keys", "list of ${NAME}"},
		{"data: {previous_secret_keys: \"${FAIRLANE_SECRET_KEY}\"}", "1", "data.previous_secret_keys", "list of ${NAME}"},
		{"envelopes: {raw: {schema: \"1\"}}", "1", "envelopes.raw", "must be named by"},
		{"envelopes: {A: {schema: \"1\"}}", "1", "envelopes.A", "must be named by"},
		{"envelopes: {a: {template: \"{payload}\"}}", "1", "envelopes.a.schema", "must be 1 to 64"},
		{"envelopes: {a: {schema: \"1\"}}", "1", "envelopes.a.template", "must hold {payload}"},
		{"envelopes: {a: {schema: \"1\", template: \"{payload}{body}\"}}", "1", "envelopes.a.template", "{body} is unknown; known here: {id}"},
		{"envelopes: {a: {schema: \"1\", template: \"{payload}\", content_type: x}}", "1", "envelopes.a.content_type", "media type"},
		{"envelopes: {a: {schema: \"1\", template: \"{payload}\", verson: 1}}", "1", "envelopes.a.verson", "is unknown"},
		{"tiers: {default: {rate: -1}}", "1", "tiers.default.rate", "must be a rate"},
		{"tiers: {default: {rate: 10}}", "1", "tiers.default.rate", "must be a rate"},
		{"tiers: {default: {rate: \"10\"}}", "1", "tiers.default.rate", "must be a rate"},
		{"tiers: {default: {rate: 1e308/s}}", "1", "tiers.default.rate", "must be a rate"},
		{"tiers: {default: {rate: }}", "1", "tiers.default.rate", "must be a rate"},
		{"tiers: {default: {rate: Unlimited}}", "1", "tiers.default.rate", "must be a rate"},
		{"tiers: {default: {burst: 5}}", "1", "tiers.default.burst", "needs a rate that is a number; it is unlimited"},
		{"tiers: {default: {rate: 0, burst: 5}}", "1", "tiers.default.burst", "it is 0"},
		{"tiers: {default: {rate: 1/s, burst: 0}}", "1", "tiers.default.burst", "from 1"},
		{"tiers: {default: {rate: 1/366d, burst: 1000000000}}", "1", "tiers.default.rate", "does not fit its burst"},
		{"tiers: {default: {cap: 1.5}}", "1", "tiers.default.cap", "whole number"},
		{"tiers: {default: {subscriptions: 0}}", "1", "tiers.default.subscriptions", "from 1 to 1000000"},
		{"tiers: {default: {weight: 0}}", "1", "tiers.default.weight", "from 1 to 1000"},
		{"tiers: {default: {inbound: {burst: 5}}}", "1", "tiers.default.inbound.burst", "needs inbound.rate"},
		{"tiers: {Pro: {weight: 1}}", "1", "tiers.Pro", "must be named by"},
		{"tiers: {a.b: {weight: 1}}", "1", "tiers", "plain word"},
		{"server: {? [a] : 1}", "1", "", "is not valid YAML"},
		{"data: {secret_key: abc}", "1", "data.secret_key", "${NAME}"},
		{"data: {secret_key: \"x${FAIRLANE_SECRET_KEY}\"}", "1", "data.secret_key", "the whole value"},
		{"data: {secret_key: \"${UNSET}\"}", "1", "data.secret_key", "set in the environment"},
		{"data: {secret_key: \"${EMPTY}\"}", "1", "data.secret_key", "set in the environment"},
		{"data: {secret_key: \"${SHORT}\"}", "1", "data.secret_key", "fitting value"},
		{"server: {admin_key: \"${SHORT}\"}", "1", "server.admin_key", "fitting value"},
		{"data: {dir: \"${ADMIN}\", dir: b}", "1", "data.dir", "once"},
		{"a: 1\n---\nb: 2", "3", "", "must be one document"},
		{"x: &a 1\ny: *a", "1", "x", "is unknown"},
		{"delivery: {timeout: &a 15s}", "1", "delivery.timeout", "anchor"},
		{"delivery: {timeout: !!str 15s}", "1", "delivery.timeout", "tag"},
		{"<<: {server: 1}", "1", "", "plain word"},
		{"a: [", "1", "", "is not valid YAML"},
		{"\tb: 1", "1", "", "is not valid YAML"},
		{"a: \xff", "0", "", "must be text in UTF-8"},
		{"a: \x00", "0", "", "must be text in UTF-8"},
		{strings.Repeat("#", MaxFile+1), "0", "", "must be at most 64KiB"},
	} {
		got, err := Parse("f.yaml", []byte(c.in), vars)
		var ps Problems
		if !errors.As(err, &ps) || got != nil {
			t.Errorf("%.60q: accepted, or %v", c.in, err)
			continue
		}
		p := ps[0]
		if len(ps) > 1 {
			p = ps[len(ps)-1]
			for _, q := range ps {
				if q.Field == c.field {
					p = q
				}
			}
		}
		if fmt.Sprint(p.Line) != c.line || p.Field != c.field || !strings.Contains(p.Rule, c.rule) {
			t.Errorf("%.60q:\n got %v\nwant line %s, field %q, %q", c.in, err, c.line, c.field, c.rule)
		}
	}
}

func TestAllProblemsAreReportedInOrder(t *testing.T) {
	_, err := Parse("f.yaml", []byte("server:\n  listen: 1\n  x: 2\ncapacity:\n  slots: 0\ntiers:\n  a: {cap: no}\n"), vars)
	const want = `f.yaml:2:3: server.listen: must be host:port, found "1"
f.yaml:3:3: server.x: is unknown; known here: admin_key, frames, listen, max_body, metrics_top, open_metrics, operator, stop_grace, tls
f.yaml:5:3: capacity.slots: must be a whole number from 1 to 1000000, found "0"
f.yaml:7:7: tiers.a.cap: must be a whole number from 1 to 100000, found "no"`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Field case 99.
func TestSecretsAppearNowhere(t *testing.T) {
	in := `{data: {secret_key: "${FAIRLANE_SECRET_KEY}"}, server: {admin_key: "${ADMIN}"}}`
	c, err := Parse("f", []byte(in), vars)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	all := out.String() + fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Data.SecretKey)
	if strings.Contains(all, key32) || strings.Contains(all, "an-admin-key") {
		t.Errorf("a secret is shown:\n%s", all)
	}
	if !strings.Contains(all, "secret_key: ${FAIRLANE_SECRET_KEY}") {
		t.Errorf("the variable's name is missing:\n%s", all)
	}
	_, err = Parse("f", []byte(`{data: {secret_key: literal-secret}, server: {admin_key: another-literal-secret}}`), vars)
	if err == nil || strings.Contains(err.Error(), "literal-secret") {
		t.Errorf("got %v", err)
	}
}

// Field case 99.
func TestPrintReadsBackAsTheSame(t *testing.T) {
	for _, in := range []string{"", sample} {
		c, err := Parse("f", []byte(in), vars)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := c.Print(&out); err != nil {
			t.Fatal(err)
		}
		again, err := Parse("g", out.Bytes(), vars)
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		if !reflect.DeepEqual(c, again) {
			t.Errorf("got  %+v\nwant %+v", again, c)
		}
	}
}

func TestEveryFieldIsPrintedWithItsRange(t *testing.T) {
	var out bytes.Buffer
	if err := Default().Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"capacity:\n  slots: 1200  # requests in flight on the whole platform: a whole number from 1 to 1000000\n",
		"    horizon: 3d  # age at which a delivery dies: a duration with a unit",
		"    slow: [1m, 5m, 30m, 2h, 5h, 10h, 14h, 20h]  #",
		"tiers:\n  default:\n    weight: 1  #",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing in\n%s", line, out.String())
		}
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fairlane.yaml")
	if _, err := Load(path, vars); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(path, []byte("x: 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, vars); err == nil || !strings.HasPrefix(err.Error(), path+":1:1: x: is unknown") {
		t.Errorf("got %v", err)
	}
}

func TestDurationsAndSizesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(3650*day)).Draw(t, "d"))
		if rapid.Bool().Draw(t, "round") {
			d = d.Round(time.Minute)
		}
		if got, err := ParseDuration(FormatDuration(d)); err != nil || got != d {
			t.Fatalf("%v -> %q -> %v, %v", d, FormatDuration(d), got, err)
		}
		n := rapid.Int64Range(0, 1<<50).Draw(t, "n") << rapid.IntRange(0, 12).Draw(t, "shift")
		if got, err := ParseSize(FormatSize(n)); err != nil || got != n {
			t.Fatalf("%d -> %q -> %d, %v", n, FormatSize(n), got, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("a: &x {b: *x}"))
	f.Add([]byte("tiers: {a: {rate: 1/s, burst: 2}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data, vars)
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
		if err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), key32) {
				t.Fatalf("error %q", err)
			}
			return
		}
		var out bytes.Buffer
		if err := c.Print(&out); err != nil {
			t.Fatal(err)
		}
		again, err := Parse("g", out.Bytes(), vars)
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		if !reflect.DeepEqual(c, again) {
			t.Fatalf("reads back differently:\n%s", out.String())
		}
	})
}
