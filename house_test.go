package fairlane_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/fairlane-dev/fairlane"

// core packages decide: no clock, no I/O, no goroutine, no blocking, no global random.
var core = []string{"limit", "fair", "retry", "breaker", "engine", "plan", "sim", "admit"}

// mayImport lists, for each package, which of ours it may import. What is not listed
// imports none of ours. "core" stands for every core package.
var mayImport = map[string][]string{
	"engine":            {"limit", "fair", "retry", "breaker"},
	"sim":               {"engine", "limit", "fair", "retry", "breaker"},
	"sim/picture":       {},
	"sim/scenario":      {"core", "internal/strictyaml"},
	"plan":              {"engine", "limit", "fair", "retry", "breaker"},
	"admit":             {"limit", "fair"},
	"admit/redisquota":  {"core"},
	"admit/identity":    {"core"},
	"admit/httpadmit":   {"core", "admit/identity"},
	"admit/policyfile":  {"core", "admit/identity", "internal/strictyaml"},
	"admit/quotatest":   {"core"},
	"internal/topic":    {},
	"internal/envelope": {},
	"internal/journal":  {"core"},
	"internal/delivery": {"core", "internal/envelope"},
	"internal/config":   {"core", "internal/envelope", "internal/strictyaml"},
	"internal/apply":    {"internal/config", "internal/strictyaml"},
	"internal/importer": {},
	"internal/receiver": {},
	"internal/fanout":   {"core", "internal/journal", "internal/delivery", "internal/envelope", "internal/topic"},
	"internal/ui":       {"core", "client", "internal/fanout"},
	"internal/server":   {"core", "admit/httpadmit", "internal/ui", "internal/fanout", "internal/journal", "internal/delivery", "internal/config", "internal/envelope", "internal/topic"},
	"internal/demo":     {"core", "internal/server", "internal/receiver"},
	"internal/torture":  {"internal/receiver"},
	"client":            {},
	"cmd/fairlane":      {"*"},
}

// An arrow between two of our packages that the design does not draw fails here.
func TestImportsPointDown(t *testing.T) {
	for _, p := range list(t) {
		from := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module+"/")
			if ours && !allowed(from, to) {
				t.Errorf("%s imports %s: not an arrow of the design; move the code down, or change mayImport and docs/decisions", from, to)
			}
		}
	}
}

// The core, and the client that others build on, depend on the standard library alone, tests aside.
func TestCoreIsStandardLibraryOnly(t *testing.T) {
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		if from != "client" && !slices.Contains(core, from) {
			continue
		}
		for _, dep := range p.Deps {
			if strings.Contains(strings.SplitN(dep, "/", 2)[0], ".") && !strings.HasPrefix(dep, module) {
				t.Errorf("%s depends on %s: it uses the standard library alone", from, dep)
			}
		}
	}
}

func allowed(from, to string) bool {
	for _, rule := range mayImport[from] {
		if rule == to || rule == "*" || rule == "core" && slices.Contains(core, to) {
			return true
		}
	}
	return false
}

type pkg struct {
	ImportPath    string
	Imports, Deps []string
}

func list(t *testing.T) (pkgs []pkg) {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps=false", "-json=ImportPath,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs
}

// banned names what the core may not use.
var banned = map[string][]string{
	"time": {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"},
	"sync": {"Cond", "NewCond", "WaitGroup"},
}

// bannedImports are packages that read clocks, block, do I/O or hold global state.
var bannedImports = []string{"os", "net", "net/http", "io/ioutil", "log", "log/slog", "math/rand", "context", "syscall"}

// The core is handed the instant and the random source. It never waits.
func TestCoreHasNoClockNoIONoGoroutine(t *testing.T) {
	for _, dir := range core {
		for _, file := range sources(t, dir) {
			checkPure(t, file)
		}
	}
}

func sources(t *testing.T, dir string) (files []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if !strings.HasSuffix(f, "_test.go") {
			files = append(files, f)
		}
	}
	return files
}

func checkPure(t *testing.T, file string) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, imp := range f.Imports {
		if path, _ := strconv.Unquote(imp.Path.Value); slices.Contains(bannedImports, path) {
			t.Errorf("%s imports %s: the core decides, a shell does; hand the value in", file, path)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if why := impure(n); why != "" {
			t.Errorf("%s: %s: the core has no clock, goroutine or blocking; hand the instant or the source in", fset.Position(n.Pos()), why)
		}
		return true
	})
}

// impure names what is wrong with a node, or "".
func impure(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "go statement"
	case *ast.SelectStmt:
		return "select"
	case *ast.SendStmt:
		return "channel send"
	case *ast.ChanType:
		return "channel"
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && x.Obj == nil {
			return bannedName(x.Name, n.Sel.Name)
		}
	}
	return ""
}

func bannedName(pkg, name string) string {
	if slices.Contains(banned[pkg], name) {
		return pkg + "." + name
	}
	if pkg == "rand" && name != "Rand" && name != "New" && name != "Source" && name != "NewPCG" {
		return "global random: rand." + name
	}
	return ""
}

// No test of ours sleeps to wait for something.
func TestNoSleepsInTests(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%s sleeps: wait for a condition, or use testing/synctest", path)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
