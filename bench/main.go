// Command bench prints the figures of docs/benchmarks.md: every row that the
// project states a number for, with the bar it is held against. It asserts
// nothing; where a bar is missed it says so.
//
// What is compared runs interleaved in one process, once a round, five rounds;
// the figure is the median, a ratio is the median of the rounds' ratios. Where
// one side must not pay for the other, endpoints or the service run in a process
// of their own: this program, started again with a role.
//
//	core.go     limiter and engine alone
//	gate.go     a gate decision in process
//	redis.go    shared quotas in Redis
//	deliver.go  what a delivery costs
//	ingest.go   how many triggers a second become durable
//	isolate.go  healthy tenants beside a black hole, protections on and off
//	restart.go  readiness after kill -9
//	parked.go   many parked of many tenants: memory, restart, drained at their contracts
//	peers.go    the loads on which the peers were measured: rate, CPU, latency
//	fair.go     the same: neighbours, limits
//	kill.go     the same: kill -9
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// row is one measurement: some figures that belong together.
type row struct {
	name, about string
	run         func(*bench) ([]figure, error)
}

var rows = []row{
	{"bucket", "limit.Bucket.Take against x/time/rate AllowN(t, n), the instant passed to both; CPU time", (*bench).bucket},
	{"keyed", "limit.Table against go-limiter's memory store, 50,000 keys, in parallel", (*bench).keyed},
	{"gate", "a gate decision of three limits in process, beside go-limiter and x/time/rate for one; CPU time", (*bench).gate},
	{"engine", "engine Offer + Finish over 50,000 lanes in random order; CPU time", (*bench).offerFinish},
	{"lanes", "heap of 50,000 lanes, each after at least one delivery", (*bench).laneMemory},
	{"registry", "what the driver keeps of a subscription beside the engine's lane", (*bench).registryMemory},
	{"round", "a measuring round with 50,000 active tenants; CPU time", (*bench).measuringRound},
	{"redis", "decisions a second against one Redis, beside redis_rate on the same, for one limit and for three", (*bench).redis},
	{"cpu", "deliveries per CPU second: journal, signing, outcomes against a bare net/http loop", (*bench).perCPUSecond},
	{"alloc", "bytes allocated per delivery by size of the payload", (*bench).allocation},
	{"ingest", "durable ingest of 900-byte triggers, synced", (*bench).ingest},
	{"isolation", "healthy tenants' p99 beside a black hole; 48 slots, timeout 2 s", (*bench).isolation},
	{"restart", "readiness after kill -9 with deliveries parked", (*bench).restart},
	{"parked", "many parked of many tenants, one by one: memory, kill -9, all drained, refilled, a hundredth drained", (*bench).parkedRow},
	{"peers-rate", "highest rate with p99 under 5 s, 20 healthy endpoints", (*bench).peersRate},
	{"peers-cpu", "CPU of the whole stack per delivery", (*bench).peersCPU},
	{"peers-latency", "latency at 200/s, 20 healthy endpoints", (*bench).peersLatency},
	{"peers-blackhole", "p99 of 100/s healthy, without and with 50/s into a black hole", (*bench).peersBlackHole},
	{"peers-noisy", "p50 of 19 quiet endpoints beside one at 10 times all of them, overloaded", (*bench).peersNoisy},
	{"peers-limit", "300 events at once into a limit of 10/s", (*bench).peersLimit},
	{"peers-kill", "kill -9 at 300/s", (*bench).peersKill},
}

func main() {
	if role := os.Getenv(roleVar); role != "" {
		exit(play(role))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func exit(err error) {
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// bench is one run of the program.
type bench struct {
	ctx      context.Context
	quick    bool
	dir      string // scratch: removed at the end
	parked   int
	tenants  int     // of the parked row
	contract float64 // of each of them, per second
	maxBytes int64   // of its log
	profile  string  // directory for CPU profiles; "" is none
	progress io.Writer

	capacity *capacity // nil until it is measured
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	b := &bench{ctx: ctx, progress: stderr}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	asJSON := flags.Bool("json", false, "print one JSON object instead of text")
	table := flags.Bool("table", false, "print the table of docs/benchmarks.md instead of text")
	list := flags.Bool("list", false, "list the rows and end")
	only := flags.String("only", "", "run these rows only: `names`, separated by commas")
	dir := flags.String("dir", "", "where data directories are made and removed; default the system's for temporary files")
	flags.BoolVar(&b.quick, "quick", false, "one short round of each: shows that it runs, its figures are noise")
	flags.IntVar(&b.parked, "parked", 50_000, "deliveries parked in the rows restart and parked")
	flags.IntVar(&b.tenants, "tenants", 500, "tenants of the parked row")
	flags.Float64Var(&b.contract, "contract", 1.25, "deliveries per second that each tenant of the parked row may get")
	flags.Int64Var(&b.maxBytes, "max-bytes", 16<<30, "size that the log of the parked row may have; where what is parked takes over a quarter, some of it moves")
	flags.StringVar(&b.profile, "profile", "", "write CPU profiles of this process and of the service into this `directory`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	if *list {
		return writeList(stdout, chosen)
	}
	if b.dir, err = os.MkdirTemp(*dir, "fairlane-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	stopProfile, err := startProfile(b.profile, "bench")
	if err != nil {
		return err
	}
	defer stopProfile()
	switch {
	case *asJSON:
		return b.print(chosen, io.Discard, func(r report) error { return r.json(stdout) })
	case *table:
		return b.print(chosen, io.Discard, func(r report) error { return r.table(stdout) })
	}
	return b.print(chosen, stdout, func(report) error { return nil })
}

func choose(only string) ([]row, error) {
	if only == "" {
		return rows, nil
	}
	var chosen []row
	for name := range strings.SplitSeq(only, ",") {
		n := len(chosen)
		for _, r := range rows {
			if r.name == strings.TrimSpace(name) {
				chosen = append(chosen, r)
			}
		}
		if len(chosen) == n {
			return nil, fmt.Errorf("--only: there is no row %q; --list shows them", name)
		}
	}
	return chosen, nil
}

func writeList(w io.Writer, chosen []row) error {
	for _, r := range chosen {
		if _, err := fmt.Fprintf(w, "%-16s %s\n", r.name, r.about); err != nil {
			return err
		}
	}
	return nil
}

// print runs the rows and writes each as text when it is there, and the whole at the end. A
// row that fails does not keep the others from running.
func (b *bench) print(chosen []row, text io.Writer, whole func(report) error) error {
	all := report{Machine: describe(b.dir), Quick: b.quick}
	all.Machine.write(text)
	var failed []error
	for _, r := range chosen {
		if b.ctx.Err() != nil {
			break
		}
		begin := time.Now()
		b.say("%s: %s", r.name, r.about)
		figures, err := r.run(b)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", r.name, err))
			b.say("%s: %v", r.name, err)
		}
		done := result{Name: r.name, About: r.about, Seconds: time.Since(begin).Seconds(), Figures: figures}
		all.Rows = append(all.Rows, done)
		done.write(text)
	}
	return errors.Join(errors.Join(failed...), whole(all), b.ctx.Err())
}

// say tells how it goes.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// pick is full, or short with --quick.
func pick[T any](b *bench, full, short T) T {
	if b.quick {
		return short
	}
	return full
}
