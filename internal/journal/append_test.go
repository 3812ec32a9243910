package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestWhatWaitsGoesIntoOnePackInOrder(t *testing.T) {
	entered, release := make(chan struct{}, 10), make(chan struct{})
	var sizes []int
	o := testOptions(t.TempDir())
	var on atomic.Bool
	o.tune.intercept = func(to string, data []byte, store func() (uint64, error)) (uint64, error) {
		if to == triggersSubject && on.Load() {
			p, _ := decodePack(1<<40, time.Time{}, data)
			sizes = append(sizes, len(p.Entries))
			entered <- struct{}{}
			<-release
		}
		return store()
	}
	j := open(t, o)
	waitReady(t, j)
	on.Store(true)
	const n = 600
	var wg sync.WaitGroup
	positions := make([]Position, n)
	for i := range n {
		wg.Go(func() { positions[i] = mustAppend(t, j, trigger(i)).Position })
		if i == 0 {
			<-entered
		}
		eventually(t, "the post waits", func() bool { return j.append.waiting() == i })
	}
	close(release)
	wg.Wait()
	if !slices.Equal(sizes, []int{1, 256, 256, 87}) { // a lone one goes at once
		t.Errorf("packs of %v", sizes)
	}
	if !slices.IsSorted(positions) {
		t.Error("the log's order is not the order of arrival")
	}
	for i, tr := range readAll(t, j, 0) {
		if tr.Position != positions[i] || string(tr.Payload) != fmt.Sprintf(`{"n":%d}`, i) {
			t.Fatalf("%d: %+v", i, tr)
		}
	}
}

func TestPackHoldsHalfAMebibyteAndALargerTriggerIsAlone(t *testing.T) {
	a := &appender{wake: make(chan struct{}, 1)}
	for _, n := range []int{200 << 10, 200 << 10, 200 << 10, 700 << 10, 1, 2} {
		a.enqueue(&posted{entry: make([]byte, n)})
	}
	var got []int
	for a.waiting() > 0 {
		got = append(got, len(a.next()))
	}
	if !slices.Equal(got, []int{2, 1, 1, 2}) || a.bytes != 0 {
		t.Errorf("packs of %v, %d bytes left", got, a.bytes)
	}
}

func TestWaitingBytesAreBounded(t *testing.T) {
	a := &appender{wake: make(chan struct{}, 1)}
	for range appendMostWait >> 20 {
		if err := a.enqueue(&posted{entry: make([]byte, 1<<20)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.enqueue(&posted{entry: []byte{1}}); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

func TestReaderWaitsForWhatBecomesDurable(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	r, err := j.Reader(0)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *Pack)
	go func() {
		for {
			p, err := r.Next(t.Context())
			if err != nil {
				close(got)
				return
			}
			got <- p
		}
	}()
	for i := range 5 {
		want := mustAppend(t, j, trigger(i))
		if p := <-got; p.Entries[0].Trigger.ID != want.ID || p.Entries[0].Trigger.Position != want.Position || p.At.IsZero() {
			t.Fatalf("%+v, want %+v", p, want)
		}
	}
	r.Close()
	if _, more := <-got; more {
		t.Error("read on behind Close")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, _ = j.Reader(0)
	r.next = 1 << 40
	if _, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestReaderBeginsInsideAPack(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	seq := storeRaw(t, j, triggersSubject, encodePack(header{writer: 1, counter: 1}, [][]byte{
		appendTrigger(nil, trigger(0)), encodeMarker(&Marker{"tenant", "acme", 1}), appendTrigger(nil, trigger(2))}))
	j.durable.raise(seq)
	for from, want := range []int{3, 2, 1, 0, 0} {
		r, _ := j.Reader(position(seq, from))
		p, err := r.Next(t.Context())
		if err != nil || len(p.Entries) != want {
			t.Errorf("from index %d: %+v, %v", from, p, err)
		}
	}
}

func TestLoadKeepsItsCacheWithinItsBytes(t *testing.T) {
	o := testOptions(t.TempDir())
	o.Cache = 10_000
	j := open(t, o)
	var all []Receipt
	for i := range 30 {
		tr := trigger(i)
		tr.Payload = bytes.Repeat([]byte{byte(i)}, 1000)
		all = append(all, mustAppend(t, j, tr))
	}
	for range 2 {
		for i, r := range all {
			tr, err := j.Load(t.Context(), r.Position)
			if err != nil || tr.ID != r.ID || tr.Payload[0] != byte(i) {
				t.Fatal(tr, err)
			}
		}
	}
	c := j.packs
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := int64(0)
	for _, p := range c.bySeq {
		sum += p.memory()
	}
	if sum != c.bytes || c.bytes > o.Cache || len(c.bySeq) < 2 {
		t.Errorf("%d packs of %d bytes, counted %d", len(c.bySeq), sum, c.bytes)
	}
}

func TestLoadByManyReadsOnce(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	p := mustAppend(t, j, trigger(1)).Position
	closeJournal(t, j)
	j = open(t, j.opt)
	var wg sync.WaitGroup
	got := make([]*Trigger, 50)
	for i := range got {
		wg.Go(func() { got[i], _ = j.Load(t.Context(), p) })
	}
	wg.Wait()
	for _, tr := range got {
		if tr == nil || tr != got[0] {
			t.Fatal("not the same decoded pack")
		}
	}
	if _, err := j.Load(t.Context(), p+1); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := j.Load(t.Context(), position(p.Seq()+1, 0)); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// Field case 98.
func TestSecondProcessOnTheDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, testOptions(dir))
	if _, err := Open(t.Context(), testOptions(dir)); !errors.Is(err, ErrLocked) {
		t.Error(err)
	}
}

func TestBadOptionsAreAllReported(t *testing.T) {
	_, err := Open(t.Context(), Options{MaxBytes: 1, MaxBody: 7 << 20, History: -1, Cache: -1, Ballast: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"Dir", "MaxBytes", "MaxBody", "History", "Cache", "Ballast"} {
		if !bytes.Contains([]byte(err.Error()), []byte(field)) {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}

func TestPartitionsAreAllUsedEvenly(t *testing.T) {
	var n [Partitions]int
	for i := range 64_000 {
		n[PartitionOf(fmt.Sprintf("tenant-%d", i))]++
	}
	if slices.Min(n[:]) < 800 || slices.Max(n[:]) > 1200 {
		t.Errorf("%v", n)
	}
	if PartitionOf("acme") != 12 { // on disk: never changes
		t.Errorf("acme is in partition %d", PartitionOf("acme"))
	}
}

// The tail and the readers have what this process wrote without asking the server, which would keep what was read.
func TestWhatWasWrittenIsNotReadBack(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	waitReady(t, j)
	before := j.link.reads.Stats().OutMsgs
	first := mustAppend(t, j, keyed(0, "k", "body"))
	for i := range 20 {
		mustAppend(t, j, trigger(i))
	}
	if r := mustAppend(t, j, keyed(0, "k", "body")); !r.Repeat || r.Position != first.Position {
		t.Errorf("a repeat is answered %+v", r)
	}
	if got := readAll(t, j, first.Position); len(got) != 21 {
		t.Errorf("read %d triggers of 21", len(got))
	}
	if n := j.link.reads.Stats().OutMsgs - before; n > 0 {
		t.Errorf("the server was asked %d times for what this process wrote", n)
	}
}
