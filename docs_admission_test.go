package fairlane_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The admission page's own commands, with curl: of thirty requests at once a free tenant gets its burst and what
// came back meanwhile, an enterprise tenant at the same moment all; a refusal carries the fields.
func TestTheAdmissionPageIsAsPrinted(t *testing.T) {
	_, text, _ := strings.Cut(page(t, "admission.md"), "\n## Try it\n")
	text, _, _ = strings.Cut(text, "\n## ")
	all := blocks(text)
	if len(all) != 6 || all[0].lang != "yaml" {
		t.Fatalf("the section has other blocks: %+v", all)
	}
	w := startWalk(t)
	file, _, _ := strings.Cut(strings.TrimPrefix(all[0].text, "# "), "\n")
	if err := os.WriteFile(filepath.Join(w.dir, file), []byte(w.there.Replace(all[0].text)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.step(t, "docs/admission.md, Try it", all[1].text, "")

	began := time.Now()
	got, _ := w.run(t, all[2].text)
	took := time.Since(began)
	count := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^ *(\d+) (\w+ \d+)$`).FindAllStringSubmatch(got, -1) {
		count[m[2]], _ = strconv.Atoi(m[1])
	}
	most := 11 + int(2*took.Seconds())
	if n := count["small 200"]; n < 10 || n > most || n+count["small 429"] != 30 || count["large 200"] != 30 {
		t.Errorf("in %v:\n%s\nwant 10 to %d of small, all of large", took, got, most)
	}

	want := moment.ReplaceAllString(each(all[5].text), "$1")
	for end := time.Now().Add(30 * time.Second); ; {
		got, _ := w.run(t, all[4].text)
		if moment.ReplaceAllString(each(got), "$1") == want {
			return
		}
		if !strings.Contains(got, " 200 ") /* so slowly that a token was back */ || time.Now().After(end) {
			t.Fatalf("%s\nprints\n%s\nnot\n%s", all[4].text, got, all[5].text)
		}
	}
}

// moment is what depends on it.
var moment = regexp.MustCompile(`(;t=|Reset: |Retry-After: |"retry_after":)\d+`)
