package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/fairlane-dev/fairlane/client"
)

// writeFile puts text into a new file of a directory of its own.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const applyFile = `
tenants:
- id: acme
  name: Acme Inc
  grants: ["news.>"]
- id: beta
subscriptions:
- tenant: acme
  name: orders
  url: http://127.0.0.1:9000/SECRETPATH
  topics: ["order.>"]
  rate: 20/s
  secrets: ["${ACME_SECRET}"]
  headers: {Authorization: "${ACME_TOKEN}"}
- tenant: beta
  name: all
  url: http://127.0.0.1:9000/beta
  topics: [">"]
`

// Applied twice, a file changes nothing the second time; with one error in it, nothing at all; secrets are
// never printed, and those that the service makes go to a file that nobody else can read.
func TestApply(t *testing.T) {
	t.Setenv(adminKeyVar, "apply-test-0123456789")
	s := startServe(t, "--dev", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	file := writeFile(t, "x.yaml", applyFile)
	env := writeFile(t, "x.env", "ACME_SECRET=text:HIDDENSECRET\nACME_TOKEN=Bearer HIDDENTOKEN\n")
	made := filepath.Join(t.TempDir(), "made.txt")
	printed := ""
	call := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := command(t, append([]string{"apply", "--server", s.url, "--env", env}, args...)...)
		if code != want {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
		printed += out + errs
		return out + errs
	}
	same := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("printed\n%s, want\n%s", got, want)
		}
	}
	const all = "+ tenant acme\n+ tenant beta\n+ subscription acme/orders\n+ subscription beta/all\n"
	same(call(0, "-f", file, "--dry-run", "--new-secrets", made), all+"4 to create, 0 to change, 0 to remove, 0 unchanged; nothing was done\n")
	wrong := writeFile(t, "wrong.yaml", strings.Replace(applyFile, `topics: [">"]`, `topics: ["..."]`, 1))
	got := call(1, "-f", wrong, "--new-secrets", made)
	if want := wrong + `:18:3: subscription "beta/all": topics: must be patterns:`; !strings.HasPrefix(got, "fairlane: nothing was changed:\n"+want) {
		t.Errorf("printed %s, want %s", got, want)
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("what is refused leaves a file of secrets")
	}
	if out := ok(t, "tenant", "ls", "--server", s.url, "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("the file with an error has changed something: %s", out)
	}
	same(call(0, "-f", file, "--new-secrets", made), all+"4 created, 0 changed, 0 removed, 0 unchanged\n")
	same(call(0, "-f", file), "0 created, 0 changed, 0 removed, 4 unchanged\n")
	secrets, err := os.ReadFile(made)
	if err != nil || !strings.HasPrefix(string(secrets), "beta/all whsec_") || strings.Count(string(secrets), "\n") != 1 {
		t.Errorf("%s %v", secrets, err)
	}
	if st, err := os.Stat(made); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	same(call(0, "-f", file, "--new-secrets", made), "0 created, 0 changed, 0 removed, 4 unchanged\n")
	if got := call(1, "-f", file, "--new-secrets", file); !strings.Contains(got, "--new-secrets: "+file+":1: must be tenant/name") {
		t.Error(got)
	}
	if again, err := os.ReadFile(made); err != nil || string(again) != string(secrets) {
		t.Errorf("the file has become %s, %v", again, err)
	}
	changed := writeFile(t, "changed.yaml", strings.NewReplacer("20/s", "30/s", "SECRETPATH", "OTHERPATH", "tier: pro", "", "news", "sport").Replace(applyFile))
	call(0, "-f", changed)
	same(call(0, "-f", file), "~ tenant acme: grants [\"sport.>\"] -> [\"news.>\"]\n"+
		"~ subscription acme/orders: burst 30 -> 20, rate 30/s -> 20/s, url http://127.0.0.1:9000/... -> http://127.0.0.1:9000/...\n"+
		"0 created, 2 changed, 0 removed, 2 unchanged\n")
	pruned := writeFile(t, "pruned.yaml", strings.Split(applyFile, "- tenant: beta")[0])
	same(call(0, "-f", pruned, "--prune", "--dry-run"), "- subscription beta/all\n0 to create, 0 to change, 1 to remove, 3 unchanged; nothing was done\n")
	call(0, "-f", pruned, "--prune")
	same(call(0, "-f", file, "--new-secrets", made), "+ subscription beta/all\n1 created, 0 changed, 0 removed, 3 unchanged\n")
	if again, err := os.ReadFile(made); err != nil || string(again) != string(secrets) {
		t.Errorf("made anew, the file has become %s, %v", again, err)
	}
	call(0, "-f", pruned, "--prune")
	out := call(0, "-f", file)
	if !strings.Contains(out, "made 1 secrets that nobody has seen") {
		t.Error(out)
	}
	var plan struct {
		Unchanged int
		Changes   []any
	}
	if err := json.Unmarshal([]byte(call(0, "-f", file, "--json")), &plan); err != nil || plan.Unchanged != 4 || len(plan.Changes) != 0 {
		t.Errorf("%+v %v", plan, err)
	}
	for _, secret := range []string{"HIDDEN", "whsec_", "PATH"} {
		if strings.Contains(printed, secret) {
			t.Errorf("%s was printed:\n%s", secret, printed)
		}
	}
	if code := s.stop(t); code != exitOK {
		t.Errorf("exit %d: %s", code, s.errs)
	}
	if strings.Contains(fmt.Sprint(s.errs), "HIDDEN") {
		t.Errorf("the log shows a secret: %s", s.errs)
	}
}

// What the command line lacks is said before anything is asked of the service.
func TestApplyAsksForItsFiles(t *testing.T) {
	t.Setenv(adminKeyVar, "apply-test-0123456789")
	for _, args := range [][]string{
		{"apply"}, {"apply", "-f", filepath.Join(t.TempDir(), "gone.yaml")}, {"apply", "-f", t.TempDir()},
		{"apply", "-f", writeFile(t, "x.yaml", applyFile), "--server", "http://127.0.0.1:1"}, // ${ACME_SECRET} is not set
		{"apply", "-f", writeFile(t, "x.yaml", ""), "--env", "gone.env"},
	} {
		if code, out, errs := command(t, args...); code == exitOK || strings.Contains(errs, "connection refused") {
			t.Errorf("%v: %d %s%s", args, code, out, errs)
		}
	}
}

// What another call creates between the plan and the writing has that call's secret, and not the one in the file.
func TestASecretOfTheFileThatIsNotInForceIsNamed(t *testing.T) {
	a := &applyCmd{newSecrets: "made.txt"}
	d := api.Desired{NewSecrets: map[string]string{"acme/a": "one", "acme/b": "two"}}
	plan := api.Plan{Changes: []api.Change{{Tenant: "acme", Name: "a", Secret: "one"}, {Tenant: "acme", Name: "c", Secret: "three"}}}
	if err := a.kept(&d, &plan); err == nil || !strings.Contains(err.Error(), "has created acme/b meanwhile") {
		t.Errorf("%v", err)
	}
	if plan.Changes[0].Secret != "" || plan.Changes[1].Secret == "" {
		t.Errorf("%+v", plan.Changes)
	}
}
