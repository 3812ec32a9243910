package torture

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const applied = 30 // tenants in a file, with a subscription each; half have another

// applying is a service and two files, each of which changes everything that the other made.
type applying struct {
	*service
	t     *testing.T
	files [2]string
	seen  chan got // by the endpoint of the subscriptions that name no secret
}

type got struct {
	path   string
	header http.Header
	body   []byte
}

// words are what an object of a file has, in each of its fields.
var words = [2]string{"one", "two"}

func newApplying(t *testing.T) *applying {
	a := &applying{service: newService(t), t: t, seen: make(chan got, applied)}
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is cut does not verify
		a.seen <- got{r.URL.Path, r.Header, body}
	}))
	t.Cleanup(endpoint.Close)
	for i, w := range words {
		var tenants, subs strings.Builder
		for n := range applied {
			fmt.Fprintf(&tenants, "- {id: t%d, name: %s, grants: [%q]}\n", n, w, w+".>")
			sub := func(name, url, more string) {
				fmt.Fprintf(&subs, "- {tenant: t%d, name: %s, url: \"%s/%s\", topics: [%q], rate: %d/s, match: {is: %s}, headers: {X-%s: \"${%s}\"}%s}\n",
					n, name, url, w, w+".>", i+1, w, w, strings.ToUpper(w), more)
			}
			sub("hook", "http://127.0.0.1:9", `, secrets: ["${SECRET}"]`)
			if n%2 == i {
				sub("only-"+w, fmt.Sprintf("%s/t%d", endpoint.URL, n), "") // the other file prunes it
			}
		}
		a.files[i] = a.file(w+".yaml", "tenants:\n"+tenants.String()+"subscriptions:\n"+subs.String())
	}
	a.file("env", "ONE=header-one\nTWO=header-two\nSECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	return a
}

func (a *applying) file(name, text string) string {
	a.t.Helper()
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// apply is the command, not started.
func (a *applying) apply(file string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, append([]string{"apply", "--server", "http://" + a.addr, "-f", file, "--env", filepath.Join(a.dir, "env"), "--prune", "--new-secrets", filepath.Join(a.dir, "made.txt")}, args...)...)
	cmd.Env = append(os.Environ(), "FAIRLANE_ADMIN_KEY="+adminKey)
	return cmd
}

// objects is what a reader sees of what is applied.
type objects struct {
	of      [2]int // whole, of each file
	visible bool   // the service answered
}

// look reads all objects: each must be as one of the files says it, in every field that is shown.
func (a *applying) look() (seen objects) {
	var tenants struct {
		Items []struct {
			ID, Name string
			Grants   []string
		}
	}
	var subs struct {
		Items []struct {
			Tenant, Name, URL, Rate string
			Topics                  []string
			Match                   map[string]string
			HeaderNames             []string `json:"header_names"`
		}
	}
	for route, out := range map[string]any{"/v1/subscriptions?limit=1000": &subs, "/v1/tenants?limit=1000": &tenants} {
		if _, err := a.do(a.t.Context(), http.MethodGet, route, nil, nil, out); err != nil {
			return seen
		}
	}
	seen.visible = true
	count := func(what string, shown ...string) {
		for i, w := range words {
			if slices.Equal(shown, slices.Repeat([]string{w}, len(shown))) {
				seen.of[i]++
				return
			}
		}
		a.t.Errorf("%s is neither the one nor the other: %v", what, shown)
	}
	for _, o := range tenants.Items {
		count("tenant "+o.ID, o.Name, strings.TrimSuffix(strings.Join(o.Grants, " "), ".>"))
	}
	for _, o := range subs.Items {
		rate := strings.NewReplacer("1/s", "one", "2/s", "two").Replace(o.Rate)
		count("subscription "+o.Tenant+"/"+o.Name, path.Base(o.URL), strings.TrimSuffix(strings.Join(o.Topics, " "), ".>"), rate, o.Match["is"], strings.ToLower(strings.TrimPrefix(strings.Join(o.HeaderNames, " "), "X-")))
	}
	return seen
}

// An apply that is killed, the service's process or the command's, leaves whole objects, some as they were; the same
// command does the rest, and once more changes nothing. Readers see nothing else meanwhile. The file of new secrets has
// those of all subscriptions that name none, whichever run created them.
func TestKillInTheMiddleOfAnApply(t *testing.T) {
	rounds := 3
	if *torture {
		rounds = 40
	}
	a := newApplying(t)
	a.startReady()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	const all = 2*applied + applied/2
	for round := range rounds {
		to := round % 2
		cut := 1 + chance.IntN(all-1)
		cmd := a.apply(a.files[to])
		ended := make(chan error, 1)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- cmd.Wait() }()
		if !poll(startLimit, func() bool { return a.look().of[to] >= cut }) {
			t.Fatalf("the apply does not come to %d objects; its log:\n%s", cut, a.logTail(4<<10))
		}
		if round%3 == 2 {
			cmd.Process.Kill()
		} else {
			a.kill()
			a.startReady()
		}
		left := <-ended
		seen := a.look()
		t.Logf("cut at %d of %d: as the file says %d, as before %d; the command: %v", cut, all, seen.of[to], seen.of[1-to], left)
		if !seen.visible || seen.of[to] < cut {
			t.Errorf("what was seen is gone: %+v, cut at %d", seen, cut)
		}
		a.finish(to, all)
		a.checkSecrets(to)
	}
}

// finish applies a file again, until nothing is left to do.
func (a *applying) finish(to, all int) {
	a.t.Helper()
	out, err := a.apply(a.files[to]).CombinedOutput()
	if err != nil {
		a.t.Fatalf("applied again: %v\n%s", err, out)
	}
	again, err := a.apply(a.files[to]).CombinedOutput()
	if want := fmt.Sprintf("0 created, 0 changed, 0 removed, %d unchanged\n", all); err != nil || string(again) != want {
		a.t.Errorf("applied once more: %v\n%s", err, again)
	}
	if seen := a.look(); seen.of[to] != all || seen.of[1-to] != 0 {
		a.t.Errorf("in the end: %+v, want %d as the file says, and no other", seen, all)
	}
}

// checkSecrets holds what the subscriptions that name no secret send against the file of new secrets.
func (a *applying) checkSecrets(to int) {
	a.t.Helper()
	data, err := os.ReadFile(filepath.Join(a.dir, "made.txt"))
	if err != nil {
		a.t.Fatal(err)
	}
	secrets := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, secret, _ := strings.Cut(strings.TrimSpace(line), " ")
		secrets[name] = secret
	}
	var subs struct{ Items []struct{ ID, Name string } }
	if _, err := a.do(a.t.Context(), http.MethodGet, "/v1/subscriptions?limit=1000", nil, nil, &subs); err != nil {
		a.t.Fatal(err)
	}
	tested := 0
	for _, o := range subs.Items {
		if strings.HasPrefix(o.Name, "only-") {
			tested++
			if _, err := a.do(a.t.Context(), http.MethodPost, "/v1/subscriptions/"+o.ID+"/test", nil, nil, nil); err != nil {
				a.t.Fatal(err)
			}
		}
	}
	for range tested {
		q := <-a.seen
		name := strings.Split(q.path, "/")[1] + "/only-" + words[to]
		wh, err := standardwebhooks.NewWebhook(secrets[name])
		if err == nil {
			err = wh.Verify(q.body, q.header)
		}
		if err != nil {
			a.t.Errorf("%s: what it sends does not verify with the secret of the file: %v", name, err)
		}
	}
	if tested != applied/2 {
		a.t.Errorf("%d subscriptions name no secret, want %d", tested, applied/2)
	}
}
