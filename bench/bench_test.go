package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// TestMain plays a role, as main does, in the processes that a row starts.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		exit(play(role))
	}
	os.Exit(m.Run())
}

func TestMissedBarsAreSaid(t *testing.T) {
	for _, c := range []struct {
		bar    *bar
		rounds series
		want   string
	}{
		{nil, series{1}, ""},
		{atMost(0.6), series{0.6}, "meets"},
		{atMost(0.6), series{0.1, 0.7, 0.7}, "misses"}, // the median decides
		{atLeast(25_000), series{24_999}, "misses"},
		{within(29, 30), series{28.9}, "misses"},
		{within(29, 30), series{29.5}, "meets"},
	} {
		f := many("x", c.rounds, "", c.bar)
		if got := f.verdict(); got != c.want {
			t.Errorf("%v against %v: %q, want %q", c.rounds, c.bar, got, c.want)
		}
		var text bytes.Buffer
		result{Figures: []figure{f}}.write(&text)
		if c.want != "" && !strings.Contains(text.String(), ": "+c.want) {
			t.Errorf("printed %q", text.String())
		}
	}
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	if got := (series{1, 4, 9}).over(series{2, 2, 3}); fmt.Sprint(got) != "[0.5 2 3]" || got.median() != 2 {
		t.Errorf("%v", got)
	}
}

func TestEveryRowRunsAloneByName(t *testing.T) {
	chosen, err := choose("bucket, peers-kill")
	if err != nil || len(chosen) != 2 || chosen[1].name != "peers-kill" {
		t.Errorf("%v %v", chosen, err)
	}
	if _, err := choose("bucket,nothing"); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("%v", err)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.name] {
			t.Errorf("two rows %q", r.name)
		}
		seen[r.name] = true
	}
}

func TestJSONIsOneObject(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"--quick", "--json", "--only", "bucket"}, &out, &progress); err != nil {
		t.Fatal(err)
	}
	var r struct {
		Quick bool
		Rows  []struct {
			Name    string
			Figures []struct {
				Value   float64
				Rounds  []float64
				Verdict string
			}
		}
	}
	d := json.NewDecoder(&out)
	if err := d.Decode(&r); err != nil || d.More() {
		t.Fatalf("%v", err)
	}
	if !r.Quick || len(r.Rows) != 1 || r.Rows[0].Name != "bucket" || r.Rows[0].Figures[0].Value <= 0 {
		t.Errorf("%+v", r)
	}
}

// The parked row, small: everything parked is delivered after a kill, and nothing of a paused tenant; the row fails
// otherwise.
func TestWhatIsParkedSurvivesAndDrains(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"--quick", "--only", "parked"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, want := range []string{"ready after kill -9", "all: share of the contract, least", "2 of 20: share of the contract, median"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestSinkAnswersRequestsInPieces(t *testing.T) {
	seen := make(chan string, 3)
	s, err := startSink(func(start []byte) { seen <- string(start[seqStart:seqEnd]) })
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	conn, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(s.url(), "http://"), "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\ncontent-length: %d\r\n\r\n", payloadSize)
	two := head + string(payload(7)) + head + string(payload(8))
	for _, piece := range []string{two[:40], two[40 : len(head)+3], two[len(head)+3:]} {
		io.WriteString(conn, piece)
	}
	for _, want := range []string{"000000000007", "000000000008"} {
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		if body, _ := io.ReadAll(resp.Body); string(body) != "ok" {
			t.Errorf("body %q", body)
		}
		if got := <-seen; got != want {
			t.Errorf("saw %s, want %s", got, want)
		}
	}
}

// api accepts triggers and does with the n-th, from 0, what do says.
func api(t *testing.T, do func(n int, body []byte) (status int)) string {
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(do(n, body))
		n++
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestLoadCountsWhatIsLostRepeatedAndRefused(t *testing.T) {
	tr := &tracker{}
	addr := api(t, func(n int, body []byte) int {
		switch n % 4 {
		case 0:
			return 503
		case 1:
			return 202 // lost
		case 2:
			tr.arrive(body) // twice
		}
		tr.arrive(body)
		return 202
	})
	atOnce(tr, addr, 3, "before") // its numbers are not those of the next
	l := atOnce(tr, addr, 40, "a0")
	l.workers = 1
	l.run(t.Context())
	if l.missing() != 10 || l.duplicates() != 10 || l.refused.Load() != 10 || l.arrivals.Load() != 30 {
		t.Errorf("missing %d, duplicates %d, refused %d, arrivals %d", l.missing(), l.duplicates(), l.refused.Load(), l.arrivals.Load())
	}
	if err := l.err(); err == nil || !strings.Contains(err.Error(), "10 posts") || !strings.Contains(err.Error(), "503") {
		t.Errorf("%v", err)
	}
	if got := l.latencies("a"); len(got) != 40 || len(l.latencies("b")) != 0 {
		t.Errorf("%d latencies", len(got))
	}
}

func TestLoadOffersEachStreamItsRate(t *testing.T) {
	l := newLoad(&tracker{}, "", 2*time.Second, stream{"a", 100}, stream{"b", 7})
	counts, last := map[string]int{}, time.Duration(0)
	for i := range l.shots {
		s := &l.shots[i]
		counts[s.tenant]++
		if s.due < last || s.due >= 2*time.Second {
			t.Errorf("due at %v after %v", s.due, last)
		}
		last = s.due
	}
	if counts["a"] != 200 || counts["b"] != 14 {
		t.Errorf("%v", counts)
	}
}

func TestStragglersAreOfWhatWasAcknowledgedBefore(t *testing.T) {
	l := &load{shots: make([]shot, 3)}
	for i, s := range [][2]time.Duration{{1, 30}, {9, 40}, {11, 90}} { // acknowledged, last request
		l.shots[i].acked.Store(int64(s[0]))
		l.shots[i].last.Store(int64(s[1]))
	}
	if got := l.straggled(10); got != 30 {
		t.Errorf("%v, want 30", got)
	}
}

func TestQuietIntervalsAreFound(t *testing.T) {
	if got := longestGap([]time.Duration{1, 2, 7, 9}); got != 5 {
		t.Errorf("%v", got)
	}
}

// The contract of the limit row, held against arrivals that keep it and that break it.
func TestLimitRowSeesAnExcess(t *testing.T) {
	c := receiver.Contract{Tokens: 10, Per: time.Second, Burst: 10}
	var kept []time.Duration
	for i := range 60 {
		kept = append(kept, time.Duration(max(i-9, 0))*100*time.Millisecond)
	}
	if over := receiver.OverContract(kept, c); over > 0.99 {
		t.Errorf("kept, yet %v over", over)
	}
	if over := receiver.OverContract(append(kept, 0), c); over <= 0.99 {
		t.Errorf("one too many, yet %v over", over)
	}
}
