package policyfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/fair"
)

const good = `
listen: "127.0.0.1:0"
upstream: http://127.0.0.1:9000
identity: {keys: keys.txt, domain: api.example.com}
redis: {url: "${REDIS}", replicas: 3}
slots: {total: 10, policy: hard, wait: 500ms}
tiers:
  free: {rate: 2/s, burst: 10, share: 2}
  pro: {rate: 20/s, burst: 60, share: 6, weight: 3}
  enterprise: {rate: unlimited, share: 20}
default_tier: free
tenants: {acme: pro, big.corp: enterprise}
routes:
  report: {methods: [POST], path: /reports/**, cost: 10}
policies:
  rate: {key: [tenant], limits: tier}
  global: {key: [], rate: 1000/s}
  day:
    key: [tenant]
    window: 1d
    store: redis
    away: local
    tiers: {free: {limit: 10000}, pro: {limit: 100000}, enterprise: unlimited}
  try: {key: [tenant, route], limit: 50, window: 1m, algorithm: fixed, mode: 25%}
  guesses: {key: [address], rate: 10/m, burst: 20, credential: broken, ipv6: 56}
`

func env(name string) (string, bool) { return "redis://:secret@127.0.0.1", name == "REDIS" }

func TestAFileSaysAllOfThis(t *testing.T) {
	f, err := Parse("f", []byte(good), env)
	if err != nil {
		t.Fatal(err)
	}
	c := f.Gate.Config()
	if f.Timeout != time.Minute {
		t.Errorf("without a timeout: %v", f.Timeout)
	}
	if len(c.Policies) != 5 || len(c.Tiers) != 3 || f.Slots != (fair.SlotLimits{Slots: 10, Mode: fair.Hard, Queue: 100, Waiters: 10_000}) || f.Wait != 500*time.Millisecond {
		t.Errorf("%+v %+v", c, f.Slots)
	}
	rate, day, try := c.Policies[0], c.Policies[2], c.Policies[3]
	if *rate.Tiers["free"] != (admit.Spec{Limit: 2, Window: time.Second, Burst: 10}) && *rate.Tiers["free"] != (admit.Spec{Limit: 1, Window: 500 * time.Millisecond, Burst: 10}) {
		t.Errorf("free: %+v", rate.Tiers["free"])
	}
	if rate.Tiers["enterprise"] != nil || day.Tiers["enterprise"] != nil || !day.Shared || day.Away != admit.AwayLocal {
		t.Errorf("%+v, %+v", rate, day)
	}
	if try.Percent != 25 || try.Spec != (admit.Spec{Algorithm: admit.FixedWindow, Limit: 50, Window: time.Minute}) {
		t.Errorf("%+v", try)
	}
	if f.Tenants["big.corp"] != "enterprise" || f.Redis.Replicas != 3 || c.Policies[4].V6 != 56 {
		t.Errorf("%+v", f)
	}
}

// A file is refused whole, with the line, the field and the rule.
func TestEveryMistakeIsRefusedWithLineAndReason(t *testing.T) {
	replace := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the file", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	for name, tc := range map[string]struct {
		text string
		want string
	}{
		"unknown key":          {replace("listen:", "lisen:"), "f:2: lisen: is unknown; known here: listen"},
		"key twice":            {replace("upstream:", "listen: \":1\"\nupstream:"), "f:3: listen: must stand once; it stands in line 2 too"},
		"no YAML":              {good + "\n  x: [", "is not valid YAML"},
		"two documents":        {good + "\n---\na: 1\n", "must be one document"},
		"key unresolved":       {replace("identity: {keys: keys.txt, domain: api.example.com}", "identity: {anonymous: free}"), "f:16: policies.rate.key: names tenant, which cannot be resolved"},
		"part unknown":         {replace("key: [tenant, route]", "key: [tenant, planet]"), "f:24: policies.try.key: must be a list of tenant, user, route, address"},
		"no key":               {replace("key: [], ", ""), "f:17: policies.global: lacks key"},
		"tier lacks limit":     {replace("pro: {limit: 100000}, ", ""), "f:23: policies.day.tiers: lacks a limit for tier pro"},
		"tier lacks rate":      {replace("{rate: 20/s, burst: 60, share: 6, weight: 3}", "{share: 6}"), "takes the rate of tier pro, which has none"},
		"tier lacks share":     {replace("burst: 10, share: 2", "burst: 10"), "f:8: tiers.free: lacks share"},
		"cost above bursts":    {replace("cost: 10", "cost: 2000"), "never lets route report through: it costs 2000, more than every burst"},
		"window without unit":  {replace("window: 1m", "window: 60"), "f:24: policies.try.window: must be a duration with a unit"},
		"no window":            {replace("limit: 50, window: 1m", "limit: 50"), "f:24: policies.try.limit: needs window"},
		"rate and limit":       {replace("rate: 1000/s", "rate: 1000/s, limit: 5, window: 1s"), "not both"},
		"no limit":             {replace("key: [], rate: 1000/s", "key: []"), "must have one of"},
		"rate without period":  {replace("rate: 1000/s", "rate: 1000"), "f:17: policies.global.rate: must be a rate such as 100/s"},
		"negative burst":       {replace("burst: 60", "burst: -60"), "f:9: tiers.pro.burst: must be a whole number from 1"},
		"mode":                 {replace("mode: 25%", "mode: 0%"), "must be enforce, observe, or a percentage"},
		"unknown tier":         {replace("acme: pro", "acme: gold"), "f:12: tenants.acme: must name a tier"},
		"default tier":         {replace("default_tier: free", "default_tier: gold"), "f:11: default_tier: must name a tier"},
		"secret in the file":   {replace(`"${REDIS}"`, "redis://:hunter2@h"), "f:5: redis.url: must be ${NAME}"},
		"store without redis":  {replace(`redis: {url: "${REDIS}", replicas: 3}`, ""), "policies.day.store: needs the section redis"},
		"nobody":               {replace("identity: {keys: keys.txt, domain: api.example.com}", ""), "identity: must say who callers are"},
		"upstream":             {replace("http://127.0.0.1:9000", "127.0.0.1:9000"), "f:3: upstream: must be http://"},
		"timeout":              {good + "timeout: 0s\n", "timeout: must be a duration with a unit"},
		"slots":                {replace("total: 10, ", ""), "slots.total: must be"},
		"anchor":               {replace("rate: 1000/s", "rate: &a 1000/s"), "anchor"},
		"null":                 {replace("rate: 1000/s", "rate: null"), "found nothing"},
		"broken with tenant":   {replace("key: [address]", "key: [tenant]"), "a request without a valid credential has none"},
		"draft":                {good + "headers: {draft: draft-12}\n", "headers.draft: must be one of draft-08"},
		"empty":                {"", "must not be empty"},
		"percentage of one":    {replace("rate: 1000/s", "rate: 1000/s, mode: 5%"), "without a key there is one counter"},
		"route that is absent": {replace("limits: tier", "limits: tier, routes: [zz]"), "names zz, which is no route"},
	} {
		_, err := Parse("f", []byte(tc.text), env)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v\nwant %s", name, err, tc.want)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "secret@")) {
			t.Errorf("%s: the error shows a secret", name)
		}
	}
}

func TestSharesBelowTheSlotsWarn(t *testing.T) {
	text := strings.NewReplacer("default_tier: free\n", "", "tenants: {acme: pro, big.corp: enterprise}", "tenants: {acme: pro, x: free}").Replace(good)
	f, err := Parse("f", []byte(text), env)
	if err != nil {
		t.Fatal(err)
	}
	want := "f:6: slots.total: the shares of all tenants sum to 8, below 10 slots: the rest is nobody's"
	if len(f.Warnings) != 1 || f.Warnings[0].Error() != want {
		t.Errorf("%v, want %s", f.Warnings, want)
	}
}

func TestAFileOfKeysIsRefusedWithLine(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	for text, want := range map[string]string{
		"# keys\n\n" + hash + " acme\n": "",
		hash + " acme ann\n":            "",
		"# x\nzz acme\n":                ":2: sha256 must be 64 hexadecimal digits",
		hash + " m\xfcller\n":           ":1: a key must name a tenant",
		hash + "\n":                     ":1: must be: SHA-256, tenant",
		hash + " a\n" + hash + " b\n":   ":2: a key must stand once",
		fmt.Sprint(hash, " a b c\n"):    ":1: must be",
	} {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadKeys(path)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), hash)) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// The drafts that a file may name are those that can be sent.
func TestDraftsAreThoseThatCanBeSent(t *testing.T) {
	src, err := os.ReadFile("../httpadmit/answers.go")
	if err != nil {
		t.Fatal(err)
	}
	if want := `var Drafts = []string{"` + strings.Join(drafts, `", "`) + `"}`; !strings.Contains(string(src), want) {
		t.Errorf("httpadmit has another list than %s", want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("tiers: {a: {rate: 1e9/s}}\npolicies: [1]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if file, err := Parse("f", data, env); err == nil && file.Gate == nil {
			t.Error("accepted without a gate")
		}
	})
}
