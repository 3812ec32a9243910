package fairlane_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/receiver"
	"github.com/fairlane-dev/fairlane/internal/server"
)

const adminKey = "docs-admin-key-0123456789"

// platform is the service that the examples run against, and the endpoint it sends to.
type platform struct {
	*server.Running
	endpoint *receiver.Receiver
	first    atomic.Pointer[receiver.Request] // that it got
	vars     map[string]string
	secret   string
}

func startPlatform(t *testing.T) *platform {
	t.Helper()
	p := &platform{}
	var err error
	if p.endpoint, err = receiver.Start(receiver.Config{Seen: func(q *receiver.Request) { p.first.CompareAndSwap(nil, q) }, NoBook: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.endpoint.Close() })
	p.Running, err = server.Start(context.Background(), server.Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", AdminKey: adminKey, MaxBytes: 256 << 20, StopGrace: time.Second,
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Tiers: map[string]fanout.Tier{"default": {Name: "default"}, "tiny": {Name: "tiny", Backlog: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	p.vars = map[string]string{"api": p.URL(), "auth": "Authorization: Bearer " + adminKey}
	return p
}

// Every command of api.md answers what the page says: status, the headers shown, and the body but for
// ids, times and measurements.
func TestAPIExamplesAnswerAsPrinted(t *testing.T) {
	p := startPlatform(t)
	var command *block
	known := map[string]bool{} // variables that the page has set so far
	for _, b := range blocks(page(t, "api.md")) {
		switch {
		case b.lang == "sh" && strings.HasPrefix(b.text, "curl "):
			command = &b
			for _, m := range variable.FindAllStringSubmatch(b.text, -1) {
				if !known[m[1]] {
					t.Errorf("docs/api.md:%d: nothing has set $%s:\n%s", b.line, m[1], b.text)
				}
			}
		case b.lang == "sh":
			for _, m := range assignment.FindAllStringSubmatch(b.text, -1) {
				known[m[1]] = true
			}
		case command != nil && (b.lang == "http" || b.lang == "json" || b.lang == "text"):
			p.try(t, command, b)
			command = nil
		}
	}
	p.checkDelivery(t)
}

var (
	variable   = regexp.MustCompile(`\$(\w+)`)
	assignment = regexp.MustCompile(`(?m)^(?:export )?(\w+)=`)
)

// try runs one command until it answers as printed: a GET may have to wait for what was posted before.
func (p *platform) try(t *testing.T, command *block, want block) {
	t.Helper()
	if strings.Contains(command.text, "Fairlane-Tenant: busy") {
		p.fillBusy(t)
	}
	args := shellWords(command.text, p.vars)
	if slices.Contains(args, "-i") != (want.lang == "http") {
		t.Errorf("docs/api.md:%d: headers are shown with -i, and not without:\n%s", command.line, command.text)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		resp, body := p.curl(t, args)
		if at := strings.TrimPrefix(resp.Header.Get("Location"), "/v1/subscriptions/"); strings.HasPrefix(at, "sub_") {
			p.vars["sub"] = at
			var made struct{ Secret string }
			_ = json.Unmarshal(body, &made) // differs is reported below
			p.secret = made.Secret
		}
		p.remember(resp, body)
		why := differs(want, resp, body)
		if why == "" {
			return
		}
		if resp.Request.Method != http.MethodGet || time.Now().After(deadline) {
			t.Errorf("docs/api.md:%d: %s\n%s\ngot %s %s", command.line, why, command.text, resp.Status, body)
			return
		}
		<-time.After(10 * time.Millisecond)
	}
}

// remember keeps the ids that the page's later commands speak of.
func (p *platform) remember(resp *http.Response, body []byte) {
	var made struct{ ID string }
	_ = json.Unmarshal(body, &made) // differs is reported
	if strings.HasPrefix(resp.Header.Get("Location"), "/v1/replays/") {
		p.vars["replay"] = made.ID
	} else if strings.HasPrefix(made.ID, "msg_p") {
		p.vars["trigger"] = made.ID
	}
}

// fillBusy makes a tenant whose dead letters are over its quota.
func (p *platform) fillBusy(t *testing.T) {
	for _, line := range []string{
		`curl -H "$auth" --json '{"id":"busy","tier":"tiny"}' $api/v1/tenants`,
		`curl -H "$auth" --json '{"tenant":"busy","url":"http://127.0.0.1:9000/","topics":[">"],"outcomes":{"2xx":"rejected"}}' $api/v1/subscriptions`,
		`curl -H "$auth" -H 'Fairlane-Tenant: busy' --json '{}' $api/v1/triggers/x`,
	} {
		resp, body := p.curl(t, shellWords(line, p.vars))
		if resp.StatusCode > 299 {
			t.Fatalf("%s: %s %s", line, resp.Status, body)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(10 * time.Millisecond) {
		if _, over := p.Fanout().Pressure("busy"); over {
			return
		} else if time.Now().After(deadline) {
			t.Fatal("the tenant does not get over its quota")
		}
	}
}

// checkDelivery holds a request that the endpoint got against the page: its headers, and its signature.
func (p *platform) checkDelivery(t *testing.T) {
	q := p.first.Load()
	if q == nil {
		t.Fatal("the endpoint got nothing")
	}
	var got []string
	for name := range q.Header {
		got = append(got, name)
	}
	var documented []string
	for _, name := range column(page(t, "api.md"), "## The request that a receiver gets") {
		documented = append(documented, http.CanonicalHeaderKey(name))
	}
	sameSet(t, "header of a delivery", documented, got)
	wh, err := standardwebhooks.NewWebhook(p.secret)
	if err == nil {
		err = wh.Verify(q.Body, q.Header)
	}
	if err != nil {
		t.Errorf("the signature does not verify: %v", err)
	}
}

// shellWords splits a simple command as a shell would, up to a pipe.
func shellWords(command string, vars map[string]string) (words []string) {
	command = strings.ReplaceAll(command, "\\\n", " ")
	for _, m := range shellWord.FindAllString(command, -1) {
		if m == "|" {
			break
		}
		word := ""
		for _, part := range shellPart.FindAllString(m, -1) {
			quote := part[0]
			if quote == '\'' || quote == '"' {
				part = part[1 : len(part)-1]
			}
			if quote != '\'' {
				part = os.Expand(part, func(name string) string { return vars[name] })
			}
			word += part
		}
		words = append(words, word)
	}
	return words
}

var (
	shellPart = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	shellWord = regexp.MustCompile(`(?:` + shellPart.String() + `)+`)
)

// curl does what the command of that name does, for the flags that the page uses. The page's endpoint
// stands for ours in what is sent and in what is returned.
func (p *platform) curl(t *testing.T, args []string) (*http.Response, []byte) {
	t.Helper()
	const from = "127.0.0.1:9000"
	to := strings.Trim(strings.TrimPrefix(p.endpoint.URL(), "http:"), "/")
	method, body, target := http.MethodGet, "", ""
	header := http.Header{}
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-s", "-i":
			continue
		case "-X":
			method = args[i+1]
		case "-H":
			name, value, _ := strings.Cut(args[i+1], ": ")
			header.Set(name, value)
		case "--json":
			body = strings.ReplaceAll(args[i+1], from, to)
			if header.Get("Content-Type") == "" {
				header.Set("Content-Type", "application/json")
			}
			if method == http.MethodGet {
				method = http.MethodPost
			}
		default:
			target = args[i]
			continue
		}
		i++
	}
	req, err := http.NewRequest(method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, bytes.ReplaceAll(got, []byte(to), []byte(from))
}

// differs says how an answer is not the one printed, or "".
func differs(want block, resp *http.Response, body []byte) string {
	text, code := want.text, 200
	if want.lang == "http" {
		head, rest, _ := strings.Cut(text, "\n\n")
		first, fields, _ := strings.Cut(strings.TrimSpace(head), "\n")
		code, _ = strconv.Atoi(strings.Fields(first)[1])
		text = rest
		for field := range strings.SplitSeq(fields, "\n") {
			name, value, _ := strings.Cut(field, ": ")
			if name != "" && !same("header", value, resp.Header.Get(name)) {
				return fmt.Sprintf("%s is %q, printed %q", name, resp.Header.Get(name), value)
			}
		}
	}
	switch {
	case resp.StatusCode != code:
		return fmt.Sprintf("status %d, printed %d", resp.StatusCode, code)
	case want.lang == "text":
		for line := range strings.Lines(text) {
			if !strings.Contains(string(body), line) {
				return "missing: " + line
			}
		}
		return ""
	case strings.TrimSpace(text) == "" && len(body) == 0:
		return ""
	}
	var printed, got any
	if err := json.Unmarshal([]byte(text), &printed); err != nil {
		return "the page: " + err.Error()
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return "the answer: " + err.Error()
	}
	if !same("", printed, got) {
		return "another body"
	}
	return ""
}

var (
	passing = regexp.MustCompile(`^(until|overlap_until|position|remaining|next|created|at|accepted|died|first_died|secret|Retry-After|recommended_cap|recommended_cap_reason|.*_ms)$`)
	ids     = regexp.MustCompile(`(msg_p|sub_|rpl_)[0-9a-z]+`)
)

// same compares two JSON values; what is different on every run only by its type.
func same(key string, a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k := range x {
			if _, there := y[k]; !there || !same(k, x[k], y[k]) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, func(a, b any) bool { return same("", a, b) })
	case string:
		y, ok := b.(string)
		if ok && ids.ReplaceAllString(x, "$1") == ids.ReplaceAllString(y, "$1") {
			return true
		}
	}
	return reflect.TypeOf(a) == reflect.TypeOf(b) && (passing.MatchString(key) || a == b)
}

// The table of operating.md names every metric that a scrape shows, with its labels.
func TestMetricsAreDocumented(t *testing.T) {
	p := startPlatform(t)
	p.fillBusy(t) // an attempt and a dead letter
	for _, line := range []string{
		`curl -H "$auth" --json '{"id":"acme"}' $api/v1/tenants`,
		`curl -H "$auth" --json '{"tenant":"acme","url":"http://127.0.0.1:9000/","topics":[">"],"rate":0}' $api/v1/subscriptions`,
		`curl -H "$auth" -H 'Fairlane-Tenant: acme' --json '{}' $api/v1/triggers/x`,
	} {
		p.curl(t, shellWords(line, p.vars))
	}
	scrape := shellWords(`curl -H "$auth" $api/metrics`, p.vars)
	var real []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		_, body := p.curl(t, scrape)
		if real = scraped(string(body)); slices.ContainsFunc(real, func(s string) bool { return strings.HasPrefix(s, "fairlane_denials_total") }) {
			break
		}
	}
	var documented []string
	row := regexp.MustCompile("(?m)^\\| `(fairlane_[a-z_0-9]+)` \\|([^|]*)\\|")
	for _, m := range row.FindAllStringSubmatch(page(t, "operating.md"), -1) {
		documented = append(documented, metric(m[1], codeWord.FindAllStringSubmatch(m[2], -1)))
	}
	sameSet(t, "metric", documented, real)
}

// scraped lists our metrics with their labels.
func scraped(body string) (list []string) {
	sample := regexp.MustCompile(`(?m)^(fairlane_[a-z_0-9]+)(?:\{(.*)\})? `)
	label := regexp.MustCompile(`([a-z]+)="`)
	for _, m := range sample.FindAllStringSubmatch(body, -1) {
		name := regexp.MustCompile(`_seconds_(bucket|sum|count)$`).ReplaceAllString(m[1], "_seconds")
		if name = metric(name, label.FindAllStringSubmatch(m[2], -1)); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// metric is a name with its labels, which are the first groups of matches; the buckets' is left out.
func metric(name string, matches [][]string) string {
	var labels []string
	for _, m := range matches {
		if m[1] != "le" {
			labels = append(labels, m[1])
		}
	}
	slices.Sort(labels)
	return strings.Join(append([]string{name}, labels...), " ")
}
