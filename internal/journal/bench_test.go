package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"golang.org/x/sys/unix"
)

func benchOptions(b *testing.B) Options {
	o := testOptions(b.TempDir())
	o.MaxBytes = 64 << 30
	return o
}

// cpu returns the CPU time that this process has taken.
func cpu() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perMillion reports the CPU time since begun for a million of what an op is.
func perMillion(b *testing.B, begun time.Duration) {
	b.ReportMetric((cpu()-begun).Seconds()/float64(b.N)*1e6, "cpu-s/million")
}

// BenchmarkAppend is closed load: so many callers, each posting again when it has its answer.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			j := open(b, benchOptions(b))
			tr := trigger(1)
			tr.Payload = bytes.Repeat([]byte("x"), 900)
			b.ReportAllocs()
			b.ResetTimer()
			begun := cpu()
			var wg sync.WaitGroup
			var n atomic.Int64
			for range writers {
				wg.Go(func() {
					for n.Add(1) <= int64(b.N) {
						if _, err := j.Append(b.Context(), tr); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			perMillion(b, begun)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "triggers/s")
		})
	}
}

// BenchmarkAppendOpen is open load: arrivals at a rate, whether or not there are answers.
func BenchmarkAppendOpen(b *testing.B) {
	const rate = 25000
	j := open(b, benchOptions(b))
	tr := trigger(1)
	tr.Payload = bytes.Repeat([]byte("x"), 900)
	took := make([]time.Duration, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	start, begun := time.Now(), cpu()
	var wg sync.WaitGroup
	for i := 0; i < b.N; {
		due := int(time.Since(start).Seconds() * rate)
		for ; i < min(due, b.N); i++ {
			at, out := start.Add(time.Duration(i)*time.Second/rate), &took[i]
			wg.Go(func() {
				if _, err := j.Append(b.Context(), tr); err != nil {
					b.Error(err)
				}
				*out = time.Since(at)
			})
		}
		pause(b.Context(), 200*time.Microsecond)
	}
	wg.Wait()
	perMillion(b, begun)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "triggers/s")
	b.ReportMetric(quantile(took, 0.5).Seconds()*1e3, "p50-ms")
	b.ReportMetric(quantile(took, 0.99).Seconds()*1e3, "p99-ms")
}

// BenchmarkOpenAfterKill prints seconds per GB of log; half of it is the server's own reading.
func BenchmarkOpenAfterKill(b *testing.B) {
	o := benchOptions(b)
	j := open(b, o)
	fill(b, j, 1<<18)
	bytes := j.Status().TriggersBytes
	crashed := b.TempDir()
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		dir := filepath.Join(crashed, strconv.Itoa(b.N))
		os.RemoveAll(dir)
		if err := errors.Join(os.CopyFS(dir, os.DirFS(o.Dir)), os.Chmod(filepath.Join(dir, secretKeyFile), 0o600)); err != nil {
			b.Fatal(err)
		}
		o2 := o
		o2.Dir = dir
		b.StartTimer()
		again, err := Open(b.Context(), o2)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		closeJournal(b, again)
		b.StartTimer()
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/float64(bytes)*1e9, "s/GB")
}

func BenchmarkRead(b *testing.B) {
	j := open(b, benchOptions(b))
	const stored = 1 << 17
	fill(b, j, stored)
	b.ReportAllocs()
	b.ResetTimer()
	begun := cpu()
	for n := 0; n < b.N; {
		r, err := j.Reader(0)
		if err != nil {
			b.Fatal(err)
		}
		for last := uint64(0); last < j.last() && n < b.N; {
			p, err := r.Next(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			last = p.Seq
			n += len(p.Entries)
		}
		r.Close()
	}
	perMillion(b, begun)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "triggers/s")
}

// fill appends n triggers of 900 bytes in full packs.
func fill(b testing.TB, j *Journal, n int) {
	b.Helper()
	var wg sync.WaitGroup
	for i := range 512 {
		wg.Go(func() {
			tr := trigger(i)
			tr.Payload = bytes.Repeat([]byte("x"), 900)
			for range n / 512 {
				if _, err := j.Append(b.Context(), tr); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkFlush: an op is one record, handed over in lots of 100 and waited for.
func BenchmarkFlush(b *testing.B) {
	j := open(b, benchOptions(b))
	lot := make([]Record, 100)
	b.ReportAllocs()
	b.ResetTimer()
	begun := cpu()
	var m Mark
	for n := 0; n < b.N; n += len(lot) {
		for i := range lot {
			lot[i] = rec(Delivered, engine.LaneID(i), Position(n+i), 1)
			lot[i].Status, lot[i].Took = 200, 20*time.Millisecond
		}
		m = j.Record(lot...)
		if n%50_000 == 0 {
			flush(b, j, m)
		}
	}
	flush(b, j, m)
	perMillion(b, begun)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkCheckpointOfAMillionParked(b *testing.B) {
	j := open(b, benchOptions(b))
	lanes := make([]LaneState, 10_000)
	for i := range lanes {
		lanes[i].Lane = engine.LaneID(i)
		for k := range 100 {
			lanes[i].Waiting = append(lanes[i].Waiting, Ref{Position: Position(k*10_000 + i), Stamp: 1_800_000_000_000 + int64(k), Attempt: 1, Reason: engine.ByRetry})
		}
		lanes[i].Counters.Parked, lanes[i].Counters.Offered = 100, 100
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := j.outcomes.counter
	for range b.N {
		flush(b, j, j.Checkpoint(&Checkpoint{Lanes: lanes}))
	}
	b.ReportMetric(float64(j.outcomes.counter-before)/float64(b.N), "messages/op")
}
