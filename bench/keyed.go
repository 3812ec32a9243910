package main

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/fairlane-dev/fairlane/limit"
)

const keyedKeys = 50_000

// keyed compares a take of a table with a take of go-limiter's memory store, on equal contracts,
// from as many goroutines as there are processors.
func (b *bench) keyed() ([]figure, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 1000, Interval: time.Second})
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close(context.Background()) }() // it only stops its sweeping
	n, names := pick(b, 4_000_000, 400_000), keyedNames()
	passed, read, theirs := tableTakes(names, false), tableTakes(names, true), storeTakes(names, store)
	s, err := b.interleave(inParallel(n, passed), inParallel(n, read), inParallel(n, theirs))
	if err != nil {
		return nil, err
	}
	return []figure{
		many("Table.Take, the instant passed", s[0], "ns", nil),
		many("Table.Take, the clock read", s[1], "ns", nil),
		many("go-limiter memory store, Take", s[2], "ns", nil),
		many("throughput over go-limiter's, the instant passed", s[2].over(s[0]), "x", atLeast(3)),
		many("throughput over go-limiter's, the clock read", s[2].over(s[1]), "x", nil),
		one("Table.Take allocates", allocs(n, func(n int) { passed(n, 0) }), "", atMost(0)),
	}, nil
}

// keyedNames is every key once, in the order in which they come first.
func keyedNames() []string {
	keys := make([]string, keyedKeys)
	for i := range keys {
		keys[i] = "tenant-" + strconv.Itoa(i)
	}
	return keys
}

// keyedOrder is every key once, in random order: what a store has laid out in the order of arrival
// is not met in that order.
func keyedOrder(names []string) []string {
	keys, rnd := slices.Clone(names), rand.New(rand.NewPCG(1, 2))
	rnd.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// tableTakes returns a loop of n takes that begins at a key of its own for each worker.
func tableTakes(names []string, readClock bool) func(n, worker int) {
	table := limit.NewTable(2*keyedKeys, maphash.MakeSeed())
	r, err := limit.NewRate(1000, time.Second, 1000)
	if err != nil {
		panic(err) // in range
	}
	for _, key := range names {
		table.Take(key, r, 0, 1)
	}
	keys := keyedOrder(names)
	return func(n, worker int) {
		now := time.Since(began)
		for i := range n {
			if readClock {
				now = time.Since(began)
			} else {
				now += time.Microsecond
			}
			table.Take(keys[(i+worker*len(keys)/7)%len(keys)], r, now, 1)
		}
	}
}

var began = time.Now()

func storeTakes(names []string, store limiter.Store) func(n, worker int) {
	ctx := context.Background()
	for _, key := range names {
		if _, _, _, _, err := store.Take(ctx, key); err != nil {
			panic(err) // it is closed after the rounds
		}
	}
	keys := keyedOrder(names)
	return func(n, worker int) {
		for i := range n {
			if _, _, _, _, err := store.Take(ctx, keys[(i+worker*len(keys)/7)%len(keys)]); err != nil {
				panic(err) // it is closed after the rounds
			}
		}
	}
}

// inParallel measures the time of n operations, shared by a worker a processor, over n.
func inParallel(n int, op func(n, worker int)) func() (float64, error) {
	workers := runtime.GOMAXPROCS(0)
	return func() (float64, error) {
		var done sync.WaitGroup
		begin := time.Now()
		for w := range workers {
			done.Go(func() { op(n/workers, w) })
		}
		done.Wait()
		return float64(time.Since(begin).Nanoseconds()) / float64(n), nil
	}
}
