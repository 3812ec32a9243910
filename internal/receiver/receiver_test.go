package receiver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

func start(t *testing.T, c receiver.Config) *receiver.Receiver {
	t.Helper()
	r, err := receiver.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func request(ctx context.Context, r *receiver.Receiver, id string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "POST", r.URL(), strings.NewReader(`{"seq": 1, "posted": 1700000000000000000}`))
	if err != nil {
		panic(err)
	}
	req.Header.Set("webhook-id", id)
	return req
}

// send posts once and returns the status, or 0 with the error.
func send(ctx context.Context, r *receiver.Receiver, id string) (*http.Response, error) {
	resp, err := http.DefaultClient.Do(request(ctx, r, id))
	if err == nil {
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return resp, err
}

func await(t *testing.T, r *receiver.Receiver, done func(receiver.Tally) bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(10 * time.Second); !done(r.Tally()); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never came; so far %+v", r.Tally())
		}
	}
}

func TestBlackHoleHoldsARequestUntilTheClientLeaves(t *testing.T) {
	r := start(t, receiver.Config{Behaviour: receiver.BlackHole()})
	ctx, leave := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 3 {
		clients.Go(func() {
			if _, err := send(ctx, r, fmt.Sprint(i)); !errors.Is(err, context.Canceled) {
				t.Errorf("the black hole answered: %v", err)
			}
		})
	}
	await(t, r, func(tally receiver.Tally) bool { return tally.InFlight == 3 })
	leave()
	clients.Wait()
	await(t, r, func(tally receiver.Tally) bool { return tally.InFlight == 0 })
	report := r.Report(receiver.Contract{})
	if report.MaxInFlight != 3 || report.Delivered != 0 || report.Answers[0] != 3 {
		t.Errorf("%+v", report)
	}
}

func TestCloseFreesRequestsThatAreNeverAnswered(t *testing.T) {
	r := start(t, receiver.Config{Behaviour: receiver.BlackHole()})
	failed := make(chan error, 1)
	go func() {
		_, err := send(t.Context(), r, "a")
		failed <- err
	}()
	await(t, r, func(tally receiver.Tally) bool { return tally.InFlight == 1 })
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
	if got := r.Tally(); got.InFlight != 0 || got.Attempts != 1 {
		t.Errorf("after Close: %+v", got)
	}
	if err := r.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestAnswersAsItsBehaviourDecides(t *testing.T) {
	for _, c := range []struct {
		name      string
		behaviour receiver.Behaviour
		want      []int // statuses in order; 0: no answer
	}{
		{"nil is ok", nil, []int{200, 200}},
		{"failing", receiver.Failing(500), []int{500, 500}},
		{"flaky", receiver.EveryNth(3, 503), []int{200, 200, 503, 200, 200, 503}},
		{"recovered", receiver.Recovering(0, 0), []int{200}},
		{"recovering", receiver.Recovering(0, time.Hour), []int{503}},
		{"closing", receiver.Closing(), []int{0, 0}},
		{"slow", receiver.OK(time.Millisecond), []int{200}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, receiver.Config{Behaviour: c.behaviour})
			answers := map[int]int{}
			for i, want := range c.want {
				resp, err := send(t.Context(), r, fmt.Sprint(i))
				status := 0
				if err == nil {
					status = resp.StatusCode
				}
				if status != want {
					t.Errorf("request %d: %d (%v), want %d", i+1, status, err, want)
				}
				answers[status]++
			}
			await(t, r, func(tally receiver.Tally) bool { return tally.InFlight == 0 })
			if got := r.Tally(); got.Attempts != len(c.want) || got.Delivered != answers[200] || got.Answers[0] != answers[0] {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestThrottlingSaysWhenToComeBack(t *testing.T) {
	r := start(t, receiver.Config{Behaviour: receiver.Throttling(1, 1500*time.Millisecond)})
	first, err := send(t.Context(), r, "a")
	if err != nil {
		t.Fatal(err)
	}
	var second *http.Response
	for range 10 { // more than one a second, however slow this machine is
		if second, err = send(t.Context(), r, "b"); err != nil {
			t.Fatal(err)
		}
		if second.StatusCode == 429 {
			break
		}
	}
	if first.StatusCode != 200 || first.Header.Get("Retry-After") != "" {
		t.Errorf("first: %d", first.StatusCode)
	}
	if second.StatusCode != 429 || second.Header.Get("Retry-After") != "2" {
		t.Errorf("second: %d, Retry-After %q, want 429 and 2", second.StatusCode, second.Header.Get("Retry-After"))
	}
}

func TestThrottlingAcceptsAtMostItsRateInAnySecond(t *testing.T) {
	plan := receiver.Throttling(2, time.Second)
	for i, c := range []struct {
		at   time.Duration
		want int
	}{
		{0, 200},
		{600 * time.Millisecond, 200},
		{999 * time.Millisecond, 429},
		{1000 * time.Millisecond, 200}, // the left edge is outside
		{1100 * time.Millisecond, 429}, // 600 and 1000
		{1600 * time.Millisecond, 200},
		{1700 * time.Millisecond, 429},
		{5000 * time.Millisecond, 200},
		{5000 * time.Millisecond, 200},
		{5000 * time.Millisecond, 429},
	} {
		if got := plan(i+1, c.at).Status; got != c.want {
			t.Errorf("at %v: %d, want %d", c.at, got, c.want)
		}
	}
}

func TestRecoveringFailsInItsIntervalOnly(t *testing.T) {
	plan := receiver.Recovering(3*time.Second, 6*time.Second)
	for at, want := range map[time.Duration]int{0: 200, 3*time.Second - 1: 200, 3 * time.Second: 503, 6*time.Second - 1: 503, 6 * time.Second: 200} {
		if got := plan(1, at).Status; got != want {
			t.Errorf("at %v: %d, want %d", at, got, want)
		}
	}
}

func TestTricklingAnswersAtOnceAndNeverEnds(t *testing.T) {
	r := start(t, receiver.Config{Behaviour: receiver.Trickling(time.Millisecond)})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp, err := http.DefaultClient.Do(request(ctx, r, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	await(t, r, func(tally receiver.Tally) bool { return tally.Delivered == 1 && tally.InFlight == 1 })
	if n, err := io.ReadFull(resp.Body, make([]byte, 3)); n != 3 {
		t.Errorf("read %d bytes of the body: %v", n, err)
	}
	leave()
	await(t, r, func(tally receiver.Tally) bool { return tally.InFlight == 0 })
}

func TestSlowCountsAClientThatLeavesAsUnanswered(t *testing.T) {
	r := start(t, receiver.Config{Behaviour: receiver.OK(time.Hour)})
	ctx, leave := context.WithCancel(t.Context())
	go send(ctx, r, "a")
	await(t, r, func(tally receiver.Tally) bool { return tally.InFlight == 1 })
	leave()
	await(t, r, func(tally receiver.Tally) bool { return tally.InFlight == 0 })
	if got := r.Tally(); got.Delivered != 0 || got.Answers[0] != 1 {
		t.Errorf("%+v", got)
	}
}

func TestAnAnswerIsCountedBeforeTheClientHasIt(t *testing.T) {
	r := start(t, receiver.Config{})
	for i := range 200 {
		if _, err := send(t.Context(), r, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		if got := r.Tally(); got.Delivered != i+1 || got.InFlight != 0 {
			t.Fatalf("after answer %d: %+v", i+1, got)
		}
	}
	if got := r.Report(receiver.Contract{}).MaxInFlight; got != 1 {
		t.Errorf("one client at a time, yet %d in flight", got)
	}
}

func TestStampFieldIsTheOriginOfTheLatency(t *testing.T) {
	r := start(t, receiver.Config{StampField: "posted"})
	if _, err := send(t.Context(), r, "a"); err != nil {
		t.Fatal(err)
	}
	want := time.Since(time.Unix(1700000000, 0))
	if got := r.Report(receiver.Contract{}).P50; got > want || got < want-time.Minute {
		t.Errorf("latency %v, want about %v", got, want)
	}
}

func TestSeenIsToldOfEveryRequestAndNoBookKeepsNone(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	r := start(t, receiver.Config{NoBook: true, Behaviour: receiver.Failing(500), Seen: func(q *receiver.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%d %s %s %d", q.N, q.Header.Get("webhook-id"), q.Body[:6], q.Reply.Status))
	}})
	if _, err := send(t.Context(), r, "a"); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || seen[0] != `1 a {"seq" 500` {
		t.Errorf("seen %q", seen)
	}
	if got := r.Tally(); got.Attempts != 0 {
		t.Errorf("kept a book: %+v", got)
	}
}

func TestBecomeChangesWhatComesNext(t *testing.T) {
	r := start(t, receiver.Config{Behaviour: receiver.Failing(500)})
	for i, want := range []int{500, 200} {
		if i == 1 {
			r.Become(receiver.OK(0))
		}
		if resp, err := send(t.Context(), r, "a"); err != nil || resp.StatusCode != want {
			t.Errorf("%v %v, want %d", resp, err, want)
		}
	}
}

func TestModesAreKnownByName(t *testing.T) {
	for _, name := range receiver.ModeNames() {
		if plan, err := receiver.Mode(name); err != nil || plan == nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(receiver.ModeHelp(), name+" ") {
			t.Errorf("no help for %s", name)
		}
	}
	_, err := receiver.Mode("blackhole")
	if err == nil || !strings.Contains(err.Error(), `"blackhole"`) || !strings.Contains(err.Error(), "black-hole") {
		t.Errorf("unknown mode: %v", err)
	}
}

func TestStartSaysWhenTheAddressIsTaken(t *testing.T) {
	r := start(t, receiver.Config{})
	address := strings.TrimSuffix(strings.TrimPrefix(r.URL(), "http://"), "/")
	if _, err := receiver.Start(receiver.Config{Listen: address}); err == nil {
		t.Error("two receivers on one address")
	}
}
