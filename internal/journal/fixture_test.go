package journal

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// plenty is a disk that is never full.
func plenty() (total, free int64) { return 1 << 40, 1 << 39 }

func testOptions(dir string) Options {
	if onCluster != nil {
		return onCluster.options(dir)
	}
	return Options{Dir: dir, MaxBytes: leastMaxBytes, MinFree: plenty, tune: tuning{patience: 20 * time.Second}} // a loaded machine is slow
}

// open opens a journal that the test's end closes.
func open(t testing.TB, o Options) *Journal {
	t.Helper()
	if testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	j, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeJournal(t, j) })
	return j
}

func closeJournal(t testing.TB, j *Journal) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := j.Close(ctx); err != nil {
		t.Error(err)
	}
}

func trigger(n int) *Trigger {
	return &Trigger{
		Accepted: time.UnixMicro(1_800_000_000_000_000 + int64(n)).UTC(), Audience: Audience{Tenants: []string{"acme"}},
		Topic: "order.paid", ContentType: "application/json", Producer: "prod_1", Payload: fmt.Appendf(nil, `{"n":%d}`, n),
	}
}

func keyed(n int, key string, body string) *Trigger {
	t := trigger(n)
	t.Key, t.Payload = key, []byte(body)
	copy(t.Fingerprint[:], body)
	return t
}

func mustAppend(t testing.TB, j *Journal, tr *Trigger) Receipt {
	t.Helper()
	r, err := j.Append(t.Context(), tr)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func flush(t testing.TB, j *Journal, m Mark) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := j.WaitFlushed(ctx, m); err != nil {
		t.Fatal(err)
	}
}

func rec(k Kind, lane engine.LaneID, p Position, attempt uint32) Record {
	return Record{Kind: k, Partition: 7, Lane: lane, Position: p, Attempt: attempt, At: time.UnixMilli(1_800_000_000_000).UTC()}
}

// quantile sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

// readAll returns the triggers from a position on, up to the newest pack.
func readAll(t testing.TB, j *Journal, from Position) []*Trigger {
	t.Helper()
	r, err := j.Reader(from)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []*Trigger
	for last := uint64(0); last < j.last(); {
		p, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last = p.Seq
		for _, e := range p.Entries {
			if e.Trigger != nil {
				out = append(out, e.Trigger)
			}
		}
	}
	return out
}
