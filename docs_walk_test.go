package fairlane_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// walker is one shell in a directory of its own, in which a page's commands are run one after the other as a
// reader would, with the real binary.
type walker struct {
	in          io.Writer
	out         *bufio.Reader
	there, here *strings.Replacer // addresses of the page to ours, and back
	dir, api    string
}

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fairlane-walk")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "real"), "./cmd/fairlane").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w: %s", err, out)
	}
	return filepath.Join(dir, "real"), err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if real, err := built(); err == nil && strings.HasPrefix(filepath.Base(filepath.Dir(real)), "fairlane-walk") {
		os.RemoveAll(filepath.Dir(real))
	}
	os.Exit(code)
}

// startWalk starts the shell. The page's addresses 127.0.0.1:8080, :8081 and :9000 become free ones.
func startWalk(t *testing.T, env ...string) *walker {
	t.Helper()
	for _, tool := range []string{"bash", "curl", "openssl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: %s is not installed: the page was not walked", tool)
		}
	}
	real, err := built()
	if err != nil {
		t.Fatal(err)
	}
	w := &walker{dir: t.TempDir(), api: free(t)}
	gate, sink := free(t), free(t)
	w.there = strings.NewReplacer("127.0.0.1:8080", w.api, "127.0.0.1:8081", gate, "127.0.0.1:9000", sink)
	w.here = strings.NewReplacer(w.api, "127.0.0.1:8080", gate, "127.0.0.1:8081", sink, "127.0.0.1:9000")
	bin := filepath.Join(t.TempDir(), "bin")
	script := fmt.Sprintf("#!/bin/sh\ncase \"$1\" in\nserve) exec %[1]s \"$@\" --listen %[2]s ;;\nsink | import | gate) exec %[1]s \"$@\" ;;\n*) exec %[1]s \"$@\" --server http://%[2]s ;;\nesac\n", real, w.api)
	if err := errors.Join(os.Mkdir(bin, 0o755), os.WriteFile(filepath.Join(bin, "fairlane"), []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("bash", "--noprofile", "--norc")
	shell.Dir = w.dir
	shell.Env = append(append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "FAIRLANE_KEY="), env...)
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	shell.Stdout, shell.Stderr = out, out
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	w.in, w.out = in, bufio.NewReader(r)
	fmt.Fprintln(in, `trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT`)
	t.Cleanup(func() {
		in.Close()
		if err := shell.Wait(); err != nil {
			t.Logf("the shell ended with %v", err)
		}
		r.Close()
	})
	return w
}

// free is a loopback address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// run runs commands and returns what they print, and the last one's exit code.
func (w *walker) run(t *testing.T, commands string) (string, string) {
	t.Helper()
	const mark = "=====walked====="
	fmt.Fprintf(w.in, "%s\nprintf '\\n%s %%d\\n' $?\n", w.there.Replace(commands), mark)
	var text strings.Builder
	for {
		line, err := w.out.ReadString('\n')
		if err != nil {
			t.Fatalf("the shell ended in\n%s\nafter\n%s", commands, text.String())
		}
		if code, is := strings.CutPrefix(line, mark+" "); is {
			return w.here.Replace(strings.TrimSpace(text.String())), strings.TrimSpace(code)
		}
		text.WriteString(line)
	}
}

// looking are the commands that a reader repeats until what is on its way has come: it is a moment away, and nothing
// that follows depends on it.
var looking = regexp.MustCompile(`\Atail`)

// walk runs the page's sh blocks; a text block is what the one before it must print. file blocks, which name
// their file in the first line, are written before.
func (w *walker) walk(t *testing.T, name string) {
	t.Helper()
	all := blocks(page(t, name))
	for i, b := range all {
		switch {
		case b.lang == "yaml" && strings.HasPrefix(b.text, "# "):
			file, _, _ := strings.Cut(b.text[2:], "\n")
			if err := os.WriteFile(filepath.Join(w.dir, file), []byte(w.there.Replace(b.text)), 0o600); err != nil {
				t.Fatal(err)
			}
		case b.lang == "sh" && !strings.HasPrefix(b.text, "go build"): // that was done
			want := ""
			if i+1 < len(all) && all[i+1].lang == "text" {
				want = all[i+1].text
			}
			w.step(t, fmt.Sprintf("docs/%s:%d", name, b.line), b.text, want)
		}
	}
}

func (w *walker) step(t *testing.T, where, commands, want string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(20 * time.Millisecond) {
		got, code := w.run(t, commands)
		if want == "" || each(got) == each(want) {
			if code != "0" && want == "" {
				t.Errorf("%s: exit %s\n%s\n%s", where, code, commands, got)
			}
			return
		}
		if !looking.MatchString(commands) || time.Now().After(deadline) {
			t.Errorf("%s:\n%s\nprints\n%s\nnot\n%s", where, commands, got, want)
			return
		}
	}
}

var (
	own    = regexp.MustCompile(`(msg_p|sub_|rpl_)[0-9a-z]+|(whsec_)[A-Za-z0-9+/=]+|("position":)\d+|(\d{4}-\d\d-\d\dT)[0-9:.]+Z|()\b\d\d:\d\d:\d\d\.\d{3}\b`)
	blanks = regexp.MustCompile(` +`)
)

// each leaves out what is different on every run.
func each(text string) string {
	return blanks.ReplaceAllString(own.ReplaceAllString(strings.TrimSpace(text), "$1$2$3$4$5"), " ")
}

// A new user's first steps, as printed.
func TestTheFirstStepsAreAsPrinted(t *testing.T) {
	w := startWalk(t)
	w.walk(t, "first-steps.md")
}

// The README's own steps, in one go: the trigger is accepted.
func TestTheReadmesStepsWork(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, use, _ := strings.Cut(string(text), "## Use it\n")
	steps := blocks(use)[0].text
	build, steps, _ := strings.Cut(steps, "\n")
	if !strings.HasPrefix(build, "go build -o bin/fairlane") {
		t.Fatalf("the first step is %s", build)
	}
	got, code := startWalk(t).run(t, strings.ReplaceAll(steps, "bin/fairlane", "fairlane"))
	if code != "0" || !regexp.MustCompile(`(?s)created acme\ncreated sub_\w+\nsecret  whsec_.*"id":"msg_p`).MatchString(got) {
		t.Errorf("exit %s: %s", code, got)
	}
}

// serve starts the service for pages that do not say how.
func (w *walker) serve(t *testing.T) {
	t.Helper()
	w.step(t, "start", "export FAIRLANE_ADMIN_KEY=walk-admin-key-0123456789; fairlane serve --dev > fairlane.log 2>&1 &\n"+
		"curl -s --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:8080/readyz", `{"ready":true}`)
}

// Files are applied as the page shows it.
func TestTheApplyPageIsAsPrinted(t *testing.T) {
	w := startWalk(t)
	w.serve(t)
	w.walk(t, "apply.md")
}

// Moves from other systems go as the page shows it; a stand-in answers for their APIs.
func TestTheMigrationPageIsAsPrinted(t *testing.T) {
	const samples = "internal/importer/testdata/"
	answers := http.NewServeMux()
	old := httptest.NewServer(answers)
	t.Cleanup(old.Close)
	walk := startWalk(t, "SVIX_API="+old.URL, "SVIX_TOKEN=x", "CONVOY_API="+old.URL, "CONVOY_KEY=x", "CONVOY_PROJECT=p1")
	file := func(pattern, name string) {
		answers.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			ids := strings.NewReplacer("{app}", r.PathValue("app"), "{endpoint}", r.PathValue("endpoint"))
			data, err := os.ReadFile(samples + ids.Replace(name))
			if err != nil {
				http.NotFound(w, r)
				return
			}
			io.WriteString(w, walk.there.Replace(string(data)))
		})
	}
	file("/api/v1/app", "svix/applications.json")
	file("/api/v1/app/{app}/endpoint", "svix/endpoints/{app}.json")
	for path, dir := range map[string]string{"secret": "secrets", "headers": "headers", "transformation": "transformations"} {
		file("/api/v1/app/{app}/endpoint/{endpoint}/"+path, "svix/"+dir+"/{endpoint}.json")
	}
	var convoy map[string]json.RawMessage
	data, err := os.ReadFile(samples + "convoy.json")
	if err == nil {
		err = json.Unmarshal(data, &convoy)
	}
	if err != nil {
		t.Fatal(err)
	}
	for path, part := range map[string]string{"": "project", "/endpoints": "endpoints", "/subscriptions": "subscriptions"} {
		answers.HandleFunc("GET /api/v1/projects/p1"+path, func(w http.ResponseWriter, _ *http.Request) { w.Write(convoy[part]) })
	}
	walk.serve(t)
	walk.walk(t, "migrating.md")
}
