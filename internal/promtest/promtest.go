// Package promtest holds alerting rules against what a running service exports: a Film of scrapes goes
// through promtool, which says what fires. For tests alone.
package promtest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNoPromtool says that this machine lacks it; `make tools` installs it.
var ErrNoPromtool = errors.New("promtool is not there: run make tools")

// Film is a row of scrapes, Step apart.
type Film struct {
	Step   time.Duration
	frames []map[string]float64
}

var sample = regexp.MustCompile(`(?m)^(fairlane_[a-z_0-9]+(?:\{[^}]*\})?) (\S+)$`)

// Add appends a scrape in Prometheus' text format. Buckets are left out.
func (f *Film) Add(scrape string) {
	frame := map[string]float64{}
	for _, m := range sample.FindAllStringSubmatch(scrape, -1) {
		if v, err := strconv.ParseFloat(m[2], 64); err == nil && !strings.Contains(m[1], "_bucket") {
			frame[m[1]] = v
		}
	}
	f.frames = append(f.frames, frame)
}

// GoOn lets things go on for d as they were: counters, and ages that grew from frame to frame over the second half
// of the film, grow as they did there; all else stays.
func (f *Film) GoOn(d time.Duration) {
	n := len(f.frames)
	last, before := f.frames[n-1], f.frames[n/2-1]
	per := float64(n - n/2)
	for i := 1; time.Duration(i)*f.Step <= d; i++ {
		next := maps.Clone(last)
		for series, v := range last {
			if was, known := before[series]; known && f.grows(series) {
				next[series] = v + (v-was)/per*float64(i)
			}
		}
		f.frames = append(f.frames, next)
	}
}

func (f *Film) grows(series string) bool {
	has := func(part string) bool { return strings.Contains(series, part) }
	if has("_total") || has("account{") {
		return true
	}
	if !slices.ContainsFunc([]string{"oldest", "lag_seconds", "unflushed_seconds"}, has) {
		return false
	}
	for i := len(f.frames) / 2; i < len(f.frames); i++ {
		if f.frames[i][series] <= f.frames[i-1][series] {
			return false
		}
	}
	return true
}

// Fired lists the alerts of a class ("page", "notice") that fired at any time of the film, sorted.
func (f *Film) Fired(rules, class string) ([]string, error) {
	tool, err := Promtool()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "promtest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in the system's temporary directory
	rules, err = filepath.Abs(rules)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "test.yaml")
	if err := os.WriteFile(file, []byte(f.test(rules, class)), 0o600); err != nil {
		return nil, err
	}
	out, err := exec.Command(tool, "test", "rules", file).CombinedOutput()
	_, got, failed := strings.Cut(string(out), "got:")
	if err == nil {
		return nil, nil
	}
	if !failed {
		return nil, fmt.Errorf("promtool: %w: %s", err, out)
	}
	var names []string
	for _, m := range regexp.MustCompile(`alertname=\\?"([A-Za-z]+)`).FindAllStringSubmatch(got, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// test is a test for promtool that expects nothing to fire: what does, it prints.
func (f *Film) test(rules, class string) string {
	step := fmt.Sprintf("%dms", f.Step.Milliseconds())
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%q]\nevaluation_interval: %s\ntests:\n- interval: %s\n  input_series:\n", rules, step, step)
	for _, series := range f.series() {
		fmt.Fprintf(&b, "  - series: '%s'\n    values: '%s'\n", series, f.values(series))
	}
	end := time.Duration(len(f.frames)-1) * f.Step
	fmt.Fprintf(&b, "  promql_expr_test:\n  - expr: group by (alertname) (max_over_time(ALERTS{alertstate=\"firing\",class=%q}[1d]))\n    eval_time: %dms\n", class, end.Milliseconds())
	return b.String()
}

func (f *Film) series() []string {
	all := map[string]bool{}
	for _, frame := range f.frames {
		for series := range frame {
			all[series] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func (f *Film) values(series string) string {
	var b strings.Builder
	for _, frame := range f.frames {
		if v, there := frame[series]; there {
			b.WriteString(strconv.FormatFloat(v, 'f', -1, 64))
		} else {
			b.WriteByte('_')
		}
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

// Promtool is where promtool is: in bin/ of this module, else in the path.
func Promtool() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	own := filepath.Join(root, "bin", "promtool")
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	if found, err := exec.LookPath("promtool"); err == nil {
		return found, nil
	}
	return "", ErrNoPromtool
}

// Root is the directory of this module's go.mod, at or above the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("promtest: no go.mod at or above the working directory")
		}
		dir = up
	}
}
