package torture

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const applied = 30 // tenants in a file, with a subscription each; half have another

// applying is a service and two files, each of which changes everything that the other made.
type applying struct {
	*service
	t     *testing.T
	files [2]string
}

// words are what an object of a file has, in each of its fields.
var words = [2]string{"one", "two"}

func newApplying(t *testing.T) *applying {
	a := &applying{service: newService(t), t: t}
	for i, w := range words {
		var tenants, subs strings.Builder
		for n := range applied {
			fmt.Fprintf(&tenants, "- {id: t%d, name: %s, grants: [%q]}\n", n, w, w+".>")
			names := []string{"hook"}
			if n%2 == i {
				names = append(names, "only-"+w) // the other file prunes it
			}
			for _, name := range names {
				fmt.Fprintf(&subs, "- {tenant: t%d, name: %s, url: \"http://127.0.0.1:9/%s\", topics: [%q], rate: %d/s, match: {is: %s}, headers: {X-%s: \"${%s}\"}, secrets: [\"${SECRET}\"]}\n",
					n, name, w, w+".>", i+1, w, w, strings.ToUpper(w))
			}
		}
		a.files[i] = a.file(w+".yaml", "tenants:\n"+tenants.String()+"subscriptions:\n"+subs.String())
	}
	a.file("env", "ONE=header-one\nTWO=header-two\nSECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	return a
}

func (a *applying) file(name, text string) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// apply is the command, not started.
func (a *applying) apply(file string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, append([]string{"apply", "--server", "http://" + a.addr, "-f", file, "--env", filepath.Join(a.dir, "env"), "--prune"}, args...)...)
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
	for path, out := range map[string]any{"/v1/subscriptions?limit=1000": &subs, "/v1/tenants?limit=1000": &tenants} {
		if _, err := a.do(a.t.Context(), http.MethodGet, path, nil, nil, out); err != nil {
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
		count("subscription "+o.Tenant+"/"+o.Name, strings.TrimPrefix(o.URL, "http://127.0.0.1:9/"), strings.TrimSuffix(strings.Join(o.Topics, " "), ".>"), rate, o.Match["is"], strings.ToLower(strings.TrimPrefix(strings.Join(o.HeaderNames, " "), "X-")))
	}
	return seen
}

// An apply that is killed, the service's process or the command's, leaves whole objects, some as they were; the same
// command does the rest, and once more changes nothing. Readers see nothing else meanwhile.
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
