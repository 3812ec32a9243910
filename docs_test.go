package fairlane_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/config"
	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/server"
)

var update = flag.Bool("update", false, "rewrite the generated tables of docs/")

func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// generated holds the part of a page between its markers against what the code says.
func generated(t *testing.T, name, part, want string) {
	t.Helper()
	text := page(t, name)
	begin := "<!-- generated: " + part + " -->\n"
	before, rest, ok := strings.Cut(text, begin)
	was, after, closed := strings.Cut(rest, "<!-- end -->")
	switch {
	case !ok || !closed:
		t.Fatalf("docs/%s has no part %q", name, part)
	case was == want:
	case *update:
		if err := os.WriteFile(filepath.Join("docs", name), []byte(before+begin+want+"<!-- end -->"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/%s, %s, is stale: run go test -run %s . -update", name, part, t.Name())
	}
}

func rows(header string, lines []string) string {
	head := "| " + header + " |\n|" + strings.Repeat("---|", strings.Count(header, "|")+1) + "\n"
	return head + strings.Join(lines, "\n") + "\n"
}

// everySetting sets what the print-out of the defaults leaves out.
const everySetting = `
retention: {history: 1d, dead: 1d}
server: {tls: {cert: c, key: k}, admin_key: "${K}"}
data: {secret_key: "${S}", previous_secret_keys: ["${S}"]}
delivery: {network: {proxy: "http://p:1", proxy_user: "${U}"}, tls: {cert: c, key: k}}
nats: {urls: ["nats://n:1"], credentials: c, user: u, password: "${U}", tls: {ca: a, cert: c, key: k}}
envelopes: {name: {schema: s, content_type: a/b, template: "{payload}"}}
tiers: {default: {rate: 10/s, burst: 5, cap_auto: {min: 1, max: 5}, inbound: {rate: 10/s, burst: 5, share: 1}}}
`

func testEnv(name string) (string, bool) {
	if name == "K" || name == "FAIRLANE_ADMIN_KEY" {
		return "0123456789abcdef", true
	}
	if name == "U" {
		return "user:password", true
	}
	return "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", true
}

func TestSettingsTableIsCurrent(t *testing.T) {
	defaults := printed(t, config.Default())
	all, err := config.Parse("all", []byte(everySetting), testEnv)
	if err != nil {
		t.Fatal(err)
	}
	meanings := printed(t, all)
	var lines []string
	for _, path := range settings(t, "") {
		rule := ruleOf(t, path)
		about := strings.TrimSuffix(meanings[path].about, ": "+rule)
		name := strings.NewReplacer("tiers.default.", "tiers.*.", "envelopes.name.", "envelopes.*.").Replace(path)
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |", name, code(defaults[path].value), about, withUnit.ReplaceAllString(rule, "$1")))
	}
	generated(t, "configuration.md", "settings", rows("setting | default | meaning | must be", lines))
}

// withUnit shortens the rules that the page explains above the table.
var withUnit = regexp.MustCompile(`a (duration|size) with a unit \([^)]*\)`)

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + strings.Trim(s, `"`) + "`"
}

type setting struct{ value, about string }

// printed reads a configuration's print-out: path to value and comment.
func printed(t *testing.T, c *config.Config) map[string]setting {
	t.Helper()
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	m := map[string]setting{}
	var sections []string
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		key, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		sections = append(sections[:depth], key)
		if value, about, leaf := strings.Cut(rest, "  # "); leaf {
			m[strings.Join(sections, ".")] = setting{strings.TrimSpace(value), about}
		}
	}
	return m
}

// settings lists the fields below a path, as the reader's own errors name them.
func settings(t *testing.T, path string) (list []string) {
	_, known, ok := strings.Cut(parseError(t, join(path, "zz"), "1"), "is unknown; known here: ")
	if !ok {
		return []string{path}
	}
	for key := range strings.SplitSeq(known, ", ") {
		if path == "" && key == "tiers" {
			key = "tiers.default"
		}
		if path == "" && key == "envelopes" {
			key = "envelopes.name"
		}
		list = append(list, settings(t, join(path, key))...)
	}
	return list
}

// ruleOf is what the reader says that a field must be.
func ruleOf(t *testing.T, path string) string {
	_, rule, ok := strings.Cut(parseError(t, path, "{}"), ": must be ")
	if !ok {
		t.Fatalf("%s has no rule", path)
	}
	rule, _, _ = strings.Cut(rule, ", found ")
	return rule
}

func join(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// parseError is the reader's error for one field.
func parseError(t *testing.T, path, value string) string {
	t.Helper()
	keys := strings.Split(path, ".")
	_, err := config.Parse("f", []byte(strings.Join(keys, ": {")+": "+value+strings.Repeat("}", len(keys)-1)), testEnv)
	if err == nil {
		t.Fatalf("%s: %s is accepted", path, value)
	}
	return err.Error()
}

// The sample file can be served as it stands, and every setting in it has an effect.
func TestSampleConfigurationIsValid(t *testing.T) {
	for _, b := range blocks(page(t, "configuration.md")) {
		if b.lang != "yaml" {
			continue
		}
		_, err := config.Parse("docs/configuration.md", []byte(b.text), testEnv)
		if err != nil {
			t.Error(err)
		}
	}
}

func TestOutcomeTableIsCurrent(t *testing.T) {
	var lines []string
	for _, r := range delivery.Table() {
		status := strconv.Itoa(r.From)
		if r.To != r.From {
			status += " to " + strconv.Itoa(r.To)
		}
		if r.RetryAfter {
			status += " with Retry-After"
		}
		lines = append(lines, fmt.Sprintf("| %s | `%s` | %s |", status, r.Class, r.Note))
	}
	generated(t, "api.md", "outcomes", rows("status, the first row that matches | class | why", lines))
}

// column lists the code words in the first cells of the table that follows a heading.
func column(text, heading string) (words []string) {
	_, text, _ = strings.Cut(text, "\n"+heading+"\n")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			break
		}
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| `") {
			for _, m := range codeWord.FindAllStringSubmatch(cell, -1) {
				words = append(words, m[1])
			}
		}
	}
	return words
}

var codeWord = regexp.MustCompile("`([^`\n]+)`")

func sameSet(t *testing.T, what string, documented, real []string) {
	t.Helper()
	for _, x := range documented {
		if !slices.Contains(real, x) {
			t.Errorf("%s: %q is documented and does not exist", what, x)
		}
	}
	for _, x := range real {
		if !slices.Contains(documented, x) {
			t.Errorf("%s: %q is not documented", what, x)
		}
	}
}

func TestReasonsAreDocumented(t *testing.T) {
	var real []string
	for r := engine.None + 1; r.String() != "unknown"; r++ {
		real = append(real, r.String())
	}
	sameSet(t, "reason", column(page(t, "api.md"), "### Reasons"), real)
}

// literals calls see for every string literal of a file, and for every pair in a composite literal.
func literals(t *testing.T, file string, see func(s string), pair func(key, value ast.Expr)) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				see(s)
			}
		case *ast.KeyValueExpr:
			pair(n.Key, n.Value)
		}
		return true
	})
}

func TestRoutesAreDocumented(t *testing.T) {
	route := regexp.MustCompile(`^(GET|POST|PUT|PATCH|DELETE) /[^ ]+$`)
	var documented []string
	for _, m := range codeWord.FindAllStringSubmatch(page(t, "api.md"), -1) {
		if route.MatchString(m[1]) {
			documented = append(documented, m[1])
		}
	}
	sameSet(t, "route", documented, server.Patterns())
}

func TestProblemsAreDocumented(t *testing.T) {
	names, real := map[string]string{}, []string{}
	file := "internal/server/problem.go"
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok {
				names[v.Names[0].Name], _ = strconv.Unquote(lit.Value)
			}
		}
		return true
	})
	literals(t, file, func(string) {}, func(key, value ast.Expr) {
		id, ok := key.(*ast.Ident)
		row, ok2 := value.(*ast.CompositeLit)
		if ok && ok2 && names[id.Name] != "" {
			real = append(real, names[id.Name]+" "+status(row.Elts[0].(*ast.SelectorExpr).Sel.Name))
		}
	})
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (\\d{3}) \\|").FindAllStringSubmatch(page(t, "api.md"), -1) {
		documented = append(documented, m[1]+" "+m[2])
	}
	sameSet(t, "problem", documented, real)
}

// status is the number of a constant of net/http.
func status(name string) string {
	for n := 100; n < 600; n++ {
		if text := http.StatusText(n); text != "" && name == "Status"+strings.ReplaceAll(text, " ", "") {
			return strconv.Itoa(n)
		}
	}
	return name
}

// block is one fenced block of a page.
type block struct {
	lang, text string
	line       int
}

func blocks(text string) (all []block) {
	var b *block
	for i, line := range strings.Split(text, "\n") {
		switch {
		case b == nil && strings.HasPrefix(line, "```"):
			b = &block{lang: line[3:], line: i + 1}
		case b != nil && line == "```":
			all = append(all, *b)
			b = nil
		case b != nil:
			b.text += line + "\n"
		}
	}
	return all
}

// A row of cases.md is a case and the tests that cover it; a test is `package.TestName` on every page.
var (
	caseRow  = regexp.MustCompile(`^\| (L?\d+) \|`)
	testName = regexp.MustCompile("`([a-z/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")
	caseNote = regexp.MustCompile(`^// (?:Field|Limiter) case (L?\d+)\.`)
)

// Every test that a page names exists, and the comment above one that cases.md names has its case.
func TestNamedTestsExist(t *testing.T) {
	known := map[string]map[string][]string{} // package, test, cases
	for _, file := range docPages(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			row := caseRow.FindStringSubmatch(line)
			for _, m := range testName.FindAllStringSubmatch(line, -1) {
				dir, name := m[1], m[2]
				if known[dir] == nil {
					known[dir] = testsOf(t, dir)
				}
				cases, exists := known[dir][name]
				switch {
				case !exists:
					t.Errorf("%s:%d: there is no %s in %s", file, i+1, name, dir)
				case row != nil && filepath.Base(file) == "cases.md" && !slices.Contains(cases, row[1]):
					t.Errorf("%s:%d: the comment above %s.%s does not name case %s", file, i+1, dir, name, row[1])
				}
			}
		}
	}
	if len(known) == 0 {
		t.Error("no page names a test")
	}
}

func docPages(t *testing.T) []string {
	t.Helper()
	top, err := filepath.Glob("docs/*.md")
	if err != nil || len(top) == 0 {
		t.Fatal("no pages", err)
	}
	deeper, _ := filepath.Glob("docs/*/*.md") // the pattern is valid
	return slices.Concat(top, deeper, []string{"README.md"})
}

// testsOf maps the tests of a directory to the cases that their comments name.
func testsOf(t *testing.T, dir string) map[string][]string {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		dir = filepath.Join("internal", dir)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string][]string{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				tests[fn.Name.Name] = casesIn(fn.Doc)
			}
		}
	}
	return tests
}

func casesIn(doc *ast.CommentGroup) (list []string) {
	if doc == nil {
		return []string{}
	}
	for _, c := range doc.List {
		if m := caseNote.FindStringSubmatch(c.Text); m != nil {
			list = append(list, m[1])
		}
	}
	return list
}

// A link between our own pages leads to a file, and to a heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	for _, file := range docPages(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := file
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(file), m[1])
			}
			if !leads(to, m[2]) {
				t.Errorf("%s links to %s%s, which is not there", file, m[1], m[2])
			}
		}
	}
}

func leads(file, anchor string) bool {
	text, err := os.ReadFile(file)
	if err != nil || anchor == "" {
		info, err := os.Stat(file)
		return err == nil && (anchor == "" || !info.IsDir())
	}
	for line := range strings.Lines(string(text)) {
		if title := strings.TrimLeft(line, "#"); title != line && anchor == "#"+slug(title) {
			return true
		}
	}
	return false
}

// slug is a heading's anchor.
func slug(title string) string {
	title = strings.ToLower(strings.TrimSpace(title))
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(title, ""), " ", "-")
}
