package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// series is one figure, round by round.
type series []float64

func (s series) median() float64 { return receiver.Quantile(slices.Sorted(slices.Values(s)), 0.5) }
func (s series) low() float64    { return slices.Min(s) }
func (s series) high() float64   { return slices.Max(s) }

// over is the ratio of two series, round by round.
func (s series) over(t series) series {
	out := make(series, len(s))
	for i := range s {
		out[i] = s[i] / t[i]
	}
	return out
}

const rounds = 5

// interleave runs every side once a round and returns the figures of each.
func (b *bench) interleave(sides ...func() (float64, error)) ([]series, error) {
	out := make([]series, len(sides))
	for n := range pick(b, rounds, 1) {
		for i, side := range sides {
			x, err := side()
			if err != nil {
				return nil, err
			}
			if err := b.ctx.Err(); err != nil {
				return nil, err
			}
			out[i] = append(out[i], x)
			b.say("  round %d, side %d: %s", n+1, i+1, short(x))
		}
	}
	return out, nil
}

// cpu is the CPU time this process has used. What runs on one goroutine is measured in
// it, so that a busy machine does not count.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // RUSAGE_SELF cannot fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perOp is the CPU time of one of n operations, in ns.
func perOp(n int, f func(n int)) func() (float64, error) {
	return func() (float64, error) {
		runtime.GC()
		begin := cpu()
		f(n)
		return float64(cpu()-begin) / float64(n), nil
	}
}

// allocs is the number of allocations of one of n operations, in whole numbers as package
// testing reports them: some of the runtime's own are in the sum.
func allocs(n int, f func(n int)) float64 {
	return float64(mallocs(func() { f(n) }) / uint64(n))
}

func mallocs(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

// heap is the live heap after a collection, in bytes.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalisers of the first released
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// allocated is the bytes allocated so far.
func allocated() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.TotalAlloc)
}

// milliseconds is the q-quantile of sorted durations, of which there is at least one.
func milliseconds(sorted []time.Duration, q float64) float64 {
	return receiver.Quantile(sorted, q).Seconds() * 1000
}

// startProfile writes a CPU profile of this process until the returned function is called.
func startProfile(dir, name string) (stop func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.prof", name, os.Getpid())))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}

// machine says where the figures come from.
type machine struct {
	Go     string  `json:"go"`
	CPU    string  `json:"cpu"`
	Cores  int     `json:"cores"`
	Disk   string  `json:"disk"`
	SyncMS float64 `json:"sync_ms"`
	Load   string  `json:"load"` // averages over 1, 5 and 15 minutes at the start
}

func describe(dir string) machine {
	return machine{
		Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(),
		CPU: cpuModel(), Disk: fileSystem(dir), SyncMS: syncTime(dir), Load: loadAverage(),
	}
}

func (m machine) write(w io.Writer) {
	fmt.Fprintf(w, "%s, %s, %d cores, %s, sync of 4 KiB %.2g ms, load average %s\n", m.Go, m.CPU, m.Cores, m.Disk, m.SyncMS, m.Load)
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, _ := strings.Cut(string(text), "model name")
	line, _, _ := strings.Cut(strings.TrimLeft(rest, "\t :"), "\n")
	if line == "" {
		return "unknown CPU"
	}
	return line
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// syncTime is the median time of a write of 4 KiB that is synced, in ms; 0 if there is none. The
// file goes with its directory.
func syncTime(dir string) float64 {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0
	}
	defer f.Close()
	var took series
	for range 21 {
		begin := time.Now()
		_, err := f.Write(make([]byte, 4096))
		if err = errors.Join(err, f.Sync()); err != nil {
			return 0
		}
		took = append(took, time.Since(begin).Seconds()*1000)
	}
	return took.median()
}
