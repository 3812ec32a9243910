package retry

import (
	"math"
	"time"
)

const (
	budgetRatio   = 0.1
	budgetReserve = 1.0
)

// Budget bounds the retries of one lane. Every attempt after the first, except
// a probe, is a retry and spends. With R retries and S successes and answers,
// both decaying with the half-life:
//
//   - own credit, if R + 1 <= Ratio*S; no other permit is needed;
//   - else the reserve, if R < Ratio*S + Reserve and the Pool has one left;
//   - else refused: the delivery keeps its place and waits.
//
// A retry that succeeds gives its spend back. So a dead endpoint gets only the
// reserve, one retry in HalfLife*log2(1 + 1/Reserve), that is in 10 s; and one
// that has recovered drains at full pace. A lane never starves for ever: R
// decays, the pool refills.
//
// The bound: R <= Ratio*S + Reserve + 1 at every instant. Decay over an interval
// of length T gives that of the retries in it at most
//
//	Ratio * (S at its start + successes and answers in it) + (Reserve + 1) * (1 + ln2*T/HalfLife)
//
// are paid for and not given back.
//
// A pool shared by all lanes alone would not do: the successes of the healthy
// lanes would pay for the retries of a dead one.
//
// Budget is plain settings, shared by many lanes; the zero value is the shipped
// one.
type Budget struct {
	Ratio    float64       // retries per success; 0 means 0.1, negative means none but the reserve
	HalfLife time.Duration // 0 means 10s
	Reserve  float64       // retries beyond the ratio; 0 or less means 1
}

// Permit is what a retry spends.
type Permit uint8

const (
	Refused  Permit = iota
	Own             // paid by the lane's own credit
	Reserved        // paid by the lane's reserve and the platform's
)

// Ask decides and changes nothing. If the retry is refused, wait is the least
// time after which the answer changes by decay and refill alone: asked again
// then, with nothing in between, it is permitted. A success may change it
// earlier. wait is 0 exactly if it is permitted. Without a Pool (nil) the lane's
// reserve is enough.
func (b *Budget) Ask(w *Window, p *Pool, now time.Duration) (perm Permit, wait time.Duration) {
	h := orHalfLife(b.HalfLife)
	credit := b.ratio()*(float64(w.Successes)+float64(w.Answers)) - float64(w.Retries)
	left := credit * fade(whole(w.clock(), now, h), h)
	if left >= 1 {
		return Own, 0
	}
	at := p.readyAt(now)
	if left <= -b.reserve() {
		at = max(at, b.reserveAt(w.clock(), -credit, h))
	}
	if at > now {
		return Refused, at - now
	}
	return Reserved, 0
}

// reserveAt returns the first instant at which debt, as it is at clock, has
// decayed below the reserve. (Own credit never comes by decay: Ratio*S - R
// only shrinks.)
func (b *Budget) reserveAt(clock time.Duration, debt float64, h time.Duration) time.Duration {
	g := grain(h)
	about := time.Duration(math.Log2(debt/b.reserve()) * float64(h))
	d := max(about-about%g-g, 0)
	for debt*fade(d, h) >= b.reserve() {
		d += g
	}
	return clock + d
}

// Spend records a permitted retry that starts now. Refused spends nothing.
func (b *Budget) Spend(w *Window, p *Pool, now time.Duration, perm Permit) {
	w.Decay(now, b.HalfLife)
	if perm == Refused {
		return
	}
	w.Retries++
	if perm == Reserved {
		p.spend(now)
	}
}

// Succeeded records a 2xx. A retry gives back what is left of the spend it made
// at the instant at; spent is Refused for a first attempt and for a probe.
func (b *Budget) Succeeded(w *Window, p *Pool, now time.Duration, spent Permit, at time.Duration) {
	b.GiveBack(w, p, now, spent, at)
	w.Successes++
	p.succeeded(now)
}

// Answered records an answer that is no 2xx but proves the endpoint alive: any
// 4xx, a rejection. For the budget it is a success; the breaker does not see it.
func (b *Budget) Answered(w *Window, p *Pool, now time.Duration, spent Permit, at time.Duration) {
	b.GiveBack(w, p, now, spent, at)
	w.Answers++
	p.succeeded(now)
}

// GiveBack undoes a Spend made at the instant at, as if it had never been (to
// rounding): what has decayed since is not given back a second time.
func (b *Budget) GiveBack(w *Window, p *Pool, now time.Duration, spent Permit, at time.Duration) {
	w.Decay(now, b.HalfLife)
	if spent == Refused {
		return
	}
	h := orHalfLife(b.HalfLife)
	age := max(w.clock()-whole(0, at, h), 0)
	w.Retries = float32(max(float64(w.Retries)-fade(age, h), 0))
	if spent == Reserved {
		p.giveBack(now, at)
	}
}

// Fill returns what is left of the lane's allowance, 0 to 1: of Ratio*S + Reserve
// the part that R has not taken. It changes nothing.
func (b *Budget) Fill(w *Window, now time.Duration) float64 {
	h := orHalfLife(b.HalfLife)
	f := fade(whole(w.clock(), now, h), h)
	most := b.ratio()*(float64(w.Successes)+float64(w.Answers))*f + b.reserve()
	return min(max(1-float64(w.Retries)*f/most, 0), 1)
}

// Failed records a failure, for the breaker. A retry's spend stays spent.
func (b *Budget) Failed(w *Window, now time.Duration) {
	w.Decay(now, b.HalfLife)
	w.Failures++
}

func (b *Budget) ratio() float64 {
	if b.Ratio == 0 {
		return budgetRatio
	}
	return max(b.Ratio, 0)
}

func (b *Budget) reserve() float64 {
	if b.Reserve <= 0 {
		return budgetReserve
	}
	return b.Reserve
}
