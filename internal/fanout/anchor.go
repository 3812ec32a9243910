package fanout

import "time"

// anchor ties the monotonic clock to the wall once, at start. Instants are monotonic
// since then; stored times are anchored wall milliseconds, which no step of the wall
// clock moves while the process lives.
type anchor struct{ start time.Time }

func newAnchor() anchor { return anchor{time.Now()} }

// now is the engine's instant.
func (a anchor) now() time.Duration { return time.Since(a.start) }

// instant places a wall time (a trigger's acceptance, a stored due time) on the engine's axis.
func (a anchor) instant(t time.Time) time.Duration {
	return t.Round(0).Sub(a.start.Round(0))
}

func (a anchor) wall(at time.Duration) time.Time { return a.start.Round(0).Add(at) }

// ms is the anchored wall millisecond of an instant, rounded down; msUp rounds up.
func (a anchor) ms(at time.Duration) int64   { return a.wall(at).UnixMilli() }
func (a anchor) msUp(at time.Duration) int64 { return a.wall(at + time.Millisecond - 1).UnixMilli() }

func (a anchor) fromMs(ms int64) time.Duration { return a.instant(time.UnixMilli(ms)) }

// apart is by how much the wall clock has left the anchored one.
func (a anchor) apart() time.Duration {
	now := time.Now()
	return now.Round(0).Sub(a.wall(now.Sub(a.start))).Abs()
}

const (
	apartMost  = time.Minute      // clocks that part by more have been stepped
	agreeAfter = 10 * time.Minute // they are trusted again when they have agreed for so long
)

// agreement remembers when the clocks were last seen apart. The zero value is trust.
type agreement struct {
	broken bool
	at     time.Duration
}

// trusts notes how far apart the clocks are, and reports whether anything may expire: not while a step may have
// made young deliveries look old. A restart, which takes the wall clock as it is, ends the doubt.
func (g *agreement) trusts(now, apart time.Duration) bool {
	if apart > apartMost {
		g.broken, g.at = true, now
	}
	if g.broken && now-g.at >= agreeAfter {
		g.broken = false
	}
	return !g.broken
}
