package ui

import (
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// snapshot is the platform at one instant.
type snapshot struct {
	at      time.Time
	stats   fanout.Stats
	lanes   *laneIndex
	tenants []fanout.TenantStatus
}

const (
	freshFor = time.Second      // at least; see snapshots
	staleAt  = 10 * time.Second // beyond it a page waits for a new one
	share    = 50               // one part in so many of the time may go into snapshots
)

// snapshots hands out the newest snapshot, and takes a new one when it is asked for and the last is old: at
// most one at a time, and so seldom that it costs at most 1/share of the time, since it is taken under the
// lock that deliveries need. Nobody looks: nothing is taken. Safe for concurrent use.
type snapshots struct {
	read func() *snapshot

	mu   sync.Mutex
	last *snapshot
	next time.Time // when a new one may be taken

	taking sync.Mutex // held while one is taken
}

// get returns the newest snapshot. One that is merely due is taken behind the caller's back, by a goroutine
// that work waits for.
func (s *snapshots) get(now time.Time, work *sync.WaitGroup) *snapshot {
	s.mu.Lock()
	last, due := s.last, !now.Before(s.next)
	s.mu.Unlock()
	switch {
	case last == nil || now.Sub(last.at) > max(staleAt, 2*s.age()):
		s.taking.Lock()
		defer s.taking.Unlock()
		return s.take(now)
	case due && s.taking.TryLock():
		work.Go(func() {
			defer s.taking.Unlock()
			s.take(now)
		})
	}
	return last
}

// age is how long the last one counts as fresh.
func (s *snapshots) age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return 0
	}
	return s.next.Sub(s.last.at)
}

// take takes one, unless another caller did since now, and makes what was asked of the last one. The caller
// holds taking.
func (s *snapshots) take(now time.Time) *snapshot {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last != nil && !last.at.Before(now) {
		return last
	}
	began := time.Now()
	shot := s.read()
	if last != nil {
		shot.lanes.prepare(last.lanes)
	}
	took := time.Since(began)
	s.mu.Lock()
	defer s.mu.Unlock()
	shot.at = began
	s.last, s.next = shot, began.Add(max(freshFor, share*took))
	return shot
}

func (u *UI) read() *snapshot {
	return &snapshot{stats: u.o.Platform.Stats(), lanes: newLaneIndex(u.o.Platform.Lanes()), tenants: u.o.Platform.Tenants()}
}

func (u *UI) now() *snapshot { return u.shot.get(time.Now(), &u.work) }
