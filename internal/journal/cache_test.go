package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// slowPacks is a cache whose reads wait until they are let go, one by one.
type slowPacks struct {
	*packs
	mu    sync.Mutex
	begun []uint64
	begin chan struct{} // one for each that has begun
	let   chan error    // how one of those that have begun ends
}

func newSlowPacks() *slowPacks {
	s := &slowPacks{packs: newPacks(nil, 1<<20), begin: make(chan struct{}, 100), let: make(chan error)}
	s.load = func(_ context.Context, seq uint64) (*Pack, error) {
		s.mu.Lock()
		s.begun = append(s.begun, seq)
		s.mu.Unlock()
		s.begin <- struct{}{}
		return &Pack{Seq: seq, Bytes: 1}, <-s.let
	}
	return s
}

// ask asks for packs, and returns when the cache knows; got receives the error of each.
func (s *slowPacks) ask(t *testing.T, got chan error, seqs ...uint64) {
	for _, seq := range seqs {
		go func() {
			_, err := s.get(t.Context(), seq)
			got <- err
		}()
		for known := false; !known; {
			s.packs.mu.Lock()
			known = s.reads[seq] != nil
			s.packs.mu.Unlock()
		}
	}
}

// What waits to be read is read in the order of the log, round and round.
func TestReadsGoThroughTheLog(t *testing.T) {
	s := newSlowPacks()
	got := make(chan error, 20)
	s.ask(t, got, 50, 51, 52, 53) // as many as are read at once
	for range readersMost {
		<-s.begin
	}
	s.ask(t, got, 70, 10, 60, 20, 10, 70) // twice is once
	for range 4 {                         // one of the readers goes on
		s.let <- nil
		<-s.begin
	}
	if want := []uint64{60, 70, 10, 20}; !slices.Equal(s.begun[readersMost:], want) {
		t.Errorf("read in the order %v, want %v", s.begun[readersMost:], want)
	}
	for range readersMost {
		s.let <- nil
	}
	for range 10 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	if n := s.fetched.Load(); n != 8 {
		t.Errorf("%d reads of 8 packs", n)
	}
}

// When the log does not answer, those who wait for their turn are told at once.
func TestNobodyWaitsBehindAReadWithoutAnAnswer(t *testing.T) {
	s := newSlowPacks()
	got := make(chan error, 20)
	s.ask(t, got, 1, 2, 3, 4)
	for range readersMost {
		<-s.begin
	}
	s.ask(t, got, 5, 6, 7)
	for range readersMost {
		s.let <- fmt.Errorf("%w: no answer", ErrUnavailable)
	}
	for range 7 {
		if err := <-got; !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	s.ask(t, got, 5)
	s.let <- nil
	if err := <-got; err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Going round in a part of the log that is a little larger than the cache finds some of it there.
func TestGoingRoundFindsSomething(t *testing.T) {
	const room, around, rounds = 100, 125, 40
	c := newPacks(nil, room)
	c.load = func(_ context.Context, seq uint64) (*Pack, error) { return &Pack{Seq: seq, Bytes: 1}, nil }
	for range rounds {
		for seq := range uint64(around) {
			if p, err := c.get(t.Context(), seq); err != nil || p.Seq != seq {
				t.Fatalf("%v, %v", p, err)
			}
			if c.bytes > room || c.bytes != int64(len(c.bySeq)) {
				t.Fatalf("%d packs of %d bytes in room for %d", len(c.bySeq), c.bytes, room)
			}
		}
	}
	if n := c.fetched.Load(); n > around*rounds*4/5 {
		t.Errorf("%d of %d were read", n, around*rounds)
	}
}
