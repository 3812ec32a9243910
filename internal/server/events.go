package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Topics of the service's own events. They are triggers like any other: durable, signed, retried, in the ledger.
const (
	endpointFailing      = "fairlane.endpoint.failing"
	breakerOpened        = "fairlane.breaker.opened"
	breakerClosed        = "fairlane.breaker.closed"
	subscriptionDisabled = "fairlane.subscription.disabled"
	backlogHigh          = "fairlane.backlog.high"
	deadLetters          = "fairlane.dead.letters"
	horizonNear          = "fairlane.horizon.near"
	quotaNear            = "fairlane.quota.near"
)

const (
	failingAfter  = 5 * time.Minute // of an open breaker
	backlogFrom   = 1000            // parked on one lane
	eventAgain    = time.Hour       // between two events of one kind about one subject
	eventFlapping = time.Minute     // the same of breakers
	eventsAtOnce  = 50              // of one look; the others follow with the next
	quotaShare    = 0.8
)

// happening is what the payload of an operational event says.
type happening struct {
	Event        string     `json:"event"` // its topic
	At           time.Time  `json:"at"`
	Tenant       string     `json:"tenant"`
	Subscription string     `json:"subscription,omitempty"`
	Cause        string     `json:"cause"`
	Count        uint64     `json:"count,omitempty"` // what the event counts
	Account      *account   `json:"account,omitempty"`
	NextProbe    *time.Time `json:"next_probe,omitempty"`

	reports bool // about a subscription that takes such events
}

// events tells tenants and the operator what happens to their lanes. It compares each look at the lanes with what it
// has told: what could not be told stays to be told, and what lasts is told once. Two things keep it from feeding on
// itself: only patterns that begin with "fairlane." take events, and what happens to a subscription with such a
// pattern is told to the operator alone, or, if it is the operator's own, only the log.
type events struct {
	operator string // tenant; "" is none
	append   func(context.Context, *journal.Trigger) (journal.Receipt, error)
	log      *slog.Logger

	mu      sync.Mutex
	lanes   map[string]*told // by subscription
	tenants map[string]*told
	begun   bool
	sent    uint64
}

// told is what is known of one subject.
type told struct {
	seen, open, failing, disabled bool
	high, near, full              bool
	opened                        time.Time
	dead                          uint64
	last                          map[string]time.Time // event by topic
}

func newEvents(operator string, j Journal, log *slog.Logger) *events {
	return &events{operator: operator, append: j.Append, log: log, lanes: map[string]*told{}, tenants: map[string]*told{}}
}

// look compares and tells. The first look only learns how things are.
func (e *events) look(now time.Time, lanes []fanout.LaneFigures, tenants []fanout.TenantStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	takers := map[string]bool{}
	for i := range lanes {
		if lanes[i].Reports {
			takers[lanes[i].TenantID] = true
		}
	}
	p := &pass{e: e, now: now, takers: takers, left: eventsAtOnce}
	for i := range lanes {
		p.lane(&lanes[i], subject(e.lanes, lanes[i].Subscription))
	}
	for i := range tenants {
		p.tenant(&tenants[i], subject(e.tenants, tenants[i].TenantID))
	}
	e.begun = true
	sweep(e.lanes)
	sweep(e.tenants)
}

func subject(m map[string]*told, id string) *told {
	t := m[id]
	if t == nil {
		t = &told{last: map[string]time.Time{}}
		m[id] = t
	}
	t.seen = true
	return t
}

// sweep forgets who was not seen.
func sweep(m map[string]*told) {
	maps.DeleteFunc(m, func(_ string, t *told) bool {
		gone := !t.seen
		t.seen = false
		return gone
	})
}

// pass is one look.
type pass struct {
	e      *events
	now    time.Time
	takers map[string]bool // tenants with a subscription that takes events
	left   int
}

func (p *pass) lane(l *fanout.LaneFigures, t *told) {
	a := viewAccount(l.Counters)
	ev := happening{Tenant: l.TenantID, Subscription: l.Subscription, Account: &a, reports: l.Reports}
	p.breaker(l, t, ev)
	ev.Cause = l.Why
	p.turn(&t.disabled, l.Why != "", subscriptionDisabled, t, ev)
	ev.Cause, ev.Count = "parked", l.Counters.Parked
	p.turn(&t.high, l.Counters.Parked >= backlogFrom || t.high && l.Counters.Parked > backlogFrom/2, backlogHigh, t, ev)
	ev.Cause, ev.Count = "in the last tenth of the horizon", uint64(l.Near)
	p.turn(&t.near, l.Near > 0, horizonNear, t, ev)
	switch dead := l.Counters.Dead; {
	case !p.e.begun || dead < t.dead:
		t.dead = dead
	case dead > t.dead:
		ev.Cause, ev.Count = "dead", dead-t.dead
		if p.tell(deadLetters, eventAgain, t, ev) {
			t.dead = dead
		}
	}
}

// breaker tells of openings and closings, and of an endpoint whose breaker stays open.
func (p *pass) breaker(l *fanout.LaneFigures, t *told, ev happening) {
	ev.Cause = "failures"
	if l.ByDenial {
		ev.Cause = "401, 403 or 404 twenty times in a row"
	}
	open := l.Breaker != breaker.Closed
	switch {
	case open && !t.open:
		ev.NextProbe = &l.NextProbe
		if p.told(breakerOpened, eventFlapping, t, ev) {
			t.open, t.opened = true, p.now
		}
	case !open && t.open:
		ev.Cause = "a probe was answered"
		if p.told(breakerClosed, 0, t, ev) {
			t.open, t.failing = false, false
		}
	case open:
		ev.NextProbe = &l.NextProbe
		p.turn(&t.failing, p.now.Sub(t.opened) >= failingAfter, endpointFailing, t, ev)
	}
}

func (p *pass) tenant(s *fanout.TenantStatus, t *told) {
	ev := happening{Tenant: s.TenantID, Cause: "bytes parked and dead", Count: uint64(max(s.Bytes, 0))}
	p.turn(&t.full, s.Quota > 0 && float64(s.Bytes) > quotaShare*float64(s.Quota), quotaNear, t, ev)
}

// turn tells of a state's beginning, once.
func (p *pass) turn(is *bool, now bool, topic string, t *told, ev happening) {
	if now && !*is && !p.told(topic, eventAgain, t, ev) {
		return
	}
	*is = now
}

// told is tell, but the first look is taken as known.
func (p *pass) told(topic string, again time.Duration, t *told, ev happening) bool {
	return !p.e.begun || p.tell(topic, again, t, ev)
}

// tell sends an event to whom it concerns and takes such events. It reports false when it must be tried again.
func (p *pass) tell(topic string, again time.Duration, t *told, ev happening) bool {
	if last, before := t.last[topic]; p.left == 0 || before && p.now.Sub(last) < again {
		return false
	}
	ev.Event, ev.At = topic, p.now.UTC()
	to := p.audience(&ev)
	p.e.log.Info("event", "topic", topic, "tenant", ev.Tenant, "subscription", ev.Subscription, "cause", ev.Cause, "count", ev.Count, "to", to)
	if len(to) > 0 {
		if err := p.e.send(to, &ev); err != nil {
			p.left = 0 // the log takes nothing: all of it later
			return false
		}
	}
	p.left--
	t.last[topic] = p.now
	return true
}

// audience are the tenant and the operator, as far as they take events; of what takes events itself only another's
// operator hears.
func (p *pass) audience(ev *happening) (to []string) {
	if !ev.reports && p.takers[ev.Tenant] {
		to = append(to, ev.Tenant)
	}
	if op := p.e.operator; op != ev.Tenant && p.takers[op] {
		to = append(to, op)
	}
	slices.Sort(to)
	return to
}

// eventProducer is the producer of events; no key has it for its id.
const eventProducer = "fairlane"

func (e *events) send(to []string, ev *happening) error {
	payload, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeout(context.Background(), 2*time.Second)
	defer done()
	_, err = e.append(ctx, &journal.Trigger{
		Audience: journal.Audience{Tenants: to}, Topic: ev.Event, ContentType: "application/json",
		Accepted: time.Now(), Producer: eventProducer, Payload: payload,
	})
	if err != nil {
		e.log.Warn("an event was put off", "topic", ev.Event, "tenant", ev.Tenant, "error", err)
		return err
	}
	e.sent++
	return nil
}
