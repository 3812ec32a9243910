package httpadmit

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/identity"
	"github.com/fairlane-dev/fairlane/fair"
)

// Shared is a store that several processes count in; package redisquota has one.
type Shared interface {
	Take(ctx context.Context, checks []admit.Check) (admit.Answer, error)
	Peek(ctx context.Context, checks []admit.Check) (admit.Answer, error)
	Refund(ctx context.Context, checks []admit.Check, a admit.Answer) error
}

// Settings are what a reload replaces, all at once.
type Settings struct {
	Gate *admit.Gate
	// Identity says whose a request is; nil: everybody is anonymous.
	Identity *identity.Resolver
	// TierOf returns the tier of a tenant whose credential names none; nil or false:
	// DefaultTier.
	TierOf      func(tenant string) (tier string, ok bool)
	DefaultTier string // "": a tenant without a tier is refused
	Anonymous   string // tier of requests without a credential, together one tenant; "": they are refused
	Proxies     admit.Proxies
	Shared      Shared          // needed by policies that are shared
	Slots       fair.SlotLimits // Slots 0: concurrency is not limited
	Wait        time.Duration   // longest wait for a slot; 0: none
	Stall       time.Duration   // longest time in which a client sends or reads nothing; 0: any
	Timeout     time.Duration   // of Proxy: longest time in which the service neither takes of a request nor begins to answer; 0: any
	Answers     Answers
	// Signal says how busy the protected resource is, 1 and above saturated. nil: the
	// part of the slots that are held.
	Signal func() float64
}

// Door guards a handler. Safe for concurrent use.
type Door struct {
	settings atomic.Pointer[Settings]
	local    *admit.Local
	slots    *Slots
	figures  *Figures
	visits   sync.Pool // of *visit, for the memory of their decisions

	origin time.Time
	unix   time.Duration // of origin: windows are aligned to the wall clock at the start

	mu   sync.Mutex
	rand *rand.Rand // spreads Retry-After
}

// New returns a door. rand spreads Retry-After; keys bounds the counters that are
// kept of each policy, 0 is 100,000.
func New(s Settings, r *rand.Rand, keys int) *Door {
	if keys == 0 {
		keys = 100_000
	}
	now := time.Now()
	d := &Door{
		local: admit.NewLocal(keys), slots: NewSlots(s.Slots), figures: newFigures(),
		origin: now, unix: time.Duration(now.UnixNano()), rand: r,
	}
	d.settings.Store(&s)
	return d
}

// Reload replaces the settings. Requests in progress end under the old ones;
// counters, waiters and held slots go on.
func (d *Door) Reload(s Settings) {
	d.settings.Store(&s)
	d.slots.SetLimits(s.Slots)
}

// Figures returns what the door counts.
func (d *Door) Figures() *Figures { return d.figures }

// Load returns how many slots are held, of how many, and how many requests wait.
func (d *Door) Load() (running, slots, waiting int) {
	running, waiting = d.slots.Load()
	return running, d.settings.Load().Slots.Slots, waiting
}

func (d *Door) now() time.Duration { return d.unix + time.Since(d.origin) }

// Middleware lets through to next what the gate admits.
func (d *Door) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := d.settings.Load()
		v := d.visit(s)
		defer d.visits.Put(v)
		v.address = s.Proxies.Client(peer(r), r.Header.Values("X-Forwarded-For"))
		p := v.named(r.Method, r.URL.EscapedPath())
		d.figures.arrived(v.route, r.Header.Get("X-Attempt"))
		if p == nil {
			p = v.enter(r)
		}
		if p != nil {
			v.refuse(w, p)
			return
		}
		v.serve(w, r, next)
	})
}

// peer is the address of the connection's other end.
func peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		a, _ := netip.ParseAddr(r.RemoteAddr) // else the zero Addr: an unknown network
		return a
	}
	return ap.Addr()
}

// saturation is how busy the protected resource is.
func (d *Door) saturation(s *Settings) float64 {
	if s.Signal != nil {
		return s.Signal()
	}
	if s.Slots.Slots == 0 {
		return 0
	}
	running, _ := d.slots.Load()
	return float64(running) / float64(s.Slots.Slots)
}

// visit is one request on its way through the door.
type visit struct {
	door    *Door
	s       *Settings
	route   string
	address netip.Addr

	id      identity.Identity
	tier    *admit.Tier
	plan    admit.Plan
	outcome admit.Outcome
	verdict admit.Verdict
	watched []admit.Answer // of the plan's WatchShared
	busy    float64        // saturation when it was decided
	release func()         // of the slot
	waited  time.Duration
}

// visit returns a visit for one request. Nothing may hold on to it, or to its
// decision, when the request has ended.
func (d *Door) visit(s *Settings) *visit {
	v, _ := d.visits.Get().(*visit)
	if v == nil {
		v = &visit{}
	}
	old := v.verdict
	*v = visit{door: d, s: s, plan: v.plan, outcome: v.outcome}
	v.verdict.Limits, v.verdict.Watched, v.verdict.Would = old.Limits[:0], old.Watched[:0], old.Would[:0]
	return v
}

// named finds the route.
func (v *visit) named(method, path string) *Problem {
	var ok bool
	if v.route, ok = v.s.Gate.Route(method, path); !ok {
		return problemPath()
	}
	return nil
}

// enter decides. A nil problem means that the request is in, and holds a slot.
func (v *visit) enter(r *http.Request) *Problem {
	if p := v.identify(r); p != nil {
		return p
	}
	if p := v.rates(r.Context()); p != nil {
		return p
	}
	p := v.slot(r.Context())
	if p != nil {
		v.refund(r.Context())
	}
	return p
}

// identify finds tenant and tier. What has no valid credential counts against
// the policies for that, never against a tenant.
func (v *visit) identify(r *http.Request) *Problem {
	err := identity.ErrNone
	if v.s.Identity != nil {
		v.id, err = v.s.Identity.Resolve(r)
	}
	if errors.Is(err, identity.ErrNone) && v.s.Anonymous != "" {
		v.id = identity.Identity{Tier: v.s.Anonymous}
		err = nil
	}
	if err != nil {
		return v.failed(r.Context(), err)
	}
	if v.id.Tier == "" && v.s.TierOf != nil {
		v.id.Tier, _ = v.s.TierOf(v.id.Tenant)
	}
	if _, ok := v.s.Gate.Tier(v.id.Tier); !ok {
		v.id.Tier = v.s.DefaultTier
	}
	tier, ok := v.s.Gate.Tier(v.id.Tier)
	if !ok {
		return problemNoTier()
	}
	v.tier = tier
	return nil
}

func (v *visit) failed(ctx context.Context, err error) *Problem {
	v.id = identity.Identity{}
	if p := v.decide(ctx, &admit.Request{Route: v.route, Address: v.address, Failed: true}); p != nil {
		return p
	}
	return problemCredential(err)
}

func (v *visit) rates(ctx context.Context) *Problem {
	return v.decide(ctx, &admit.Request{
		Tenant: v.id.Tenant, User: v.id.User, Tier: v.tier.Name, Route: v.route, Address: v.address,
	})
}

// decide asks all policies. If all pass, refund gives back what they counted.
func (v *visit) decide(ctx context.Context, req *admit.Request) *Problem {
	d, now := v.door, v.door.now()
	v.busy = d.saturation(v.s)
	plan, o := &v.plan, &v.outcome
	v.s.Gate.PlanInto(plan, req)
	*o = admit.Outcome{Local: o.Local, WatchLocal: o.WatchLocal[:0]}
	d.local.TakeInto(&o.Local, now, plan.Local)
	allowed := o.Local.Allowed
	if allowed && len(plan.Shared) > 0 {
		var err error
		if o.Shared, err = v.s.Shared.Take(ctx, plan.Shared); err != nil {
			d.local.Refund(now, plan.Local, o.Local)
			v.verdict = admit.Verdict{}
			return problemGone(err)
		}
		if allowed = o.Shared.Allowed; !allowed {
			d.local.Refund(now, plan.Local, o.Local)
		}
	}
	v.watch(ctx, now, allowed)
	plan.VerdictInto(&v.verdict, o)
	if !allowed {
		return problemDenied(&v.verdict, req.Tier)
	}
	return nil
}

// refund gives back what the policies counted, the observed ones too.
func (v *visit) refund(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // the client may have gone
	d, p, o := v.door, &v.plan, &v.outcome
	d.local.Refund(d.now(), p.Local, o.Local)
	for i := range o.WatchLocal {
		d.local.Refund(d.now(), p.WatchLocal[i:i+1], admit.Answer{Allowed: o.WatchLocal[i].Allowed, Checks: o.WatchLocal[i : i+1]})
	}
	if len(p.Shared) > 0 {
		v.s.Shared.Refund(ctx, p.Shared, o.Shared) //nolint:errcheck // it then counts as used
	}
	for i, a := range v.watched {
		v.s.Shared.Refund(ctx, p.WatchShared[i:i+1], a) //nolint:errcheck // as above
	}
}

// watch asks the observed policies, each by itself: of a request that is let in
// they count, of another they only say.
func (v *visit) watch(ctx context.Context, now time.Duration, allowed bool) {
	p, o := &v.plan, &v.outcome
	for i := range p.WatchLocal {
		ask := v.door.local.Peek
		if allowed {
			ask = v.door.local.Take
		}
		o.WatchLocal = append(o.WatchLocal, ask(now, p.WatchLocal[i:i+1]).Checks[0])
	}
	for i := range p.WatchShared {
		ask := v.s.Shared.Peek
		if allowed {
			ask = v.s.Shared.Take
		}
		a, err := ask(ctx, p.WatchShared[i:i+1])
		if err != nil {
			return // the client has gone
		}
		o.WatchShared, v.watched = append(o.WatchShared, a.Checks[0]), append(v.watched, a)
	}
}

// slot takes a slot, or waits for one.
func (v *visit) slot(ctx context.Context) *Problem {
	v.release = func() {}
	if v.s.Slots.Slots == 0 {
		return nil
	}
	began := time.Now()
	claim := fair.Claim{Tenant: v.id.Tenant, Share: v.tier.Share, Weight: v.tier.Weight}
	release, err := v.door.slots.Acquire(ctx, claim, v.s.Wait)
	v.waited = time.Since(began)
	if err != nil {
		running, _ := v.door.slots.Tenant(v.id.Tenant)
		return problemSlots(err, v.tier, running)
	}
	v.release = release
	return nil
}

// serve runs the handler and gives the slot back.
func (v *visit) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	began := time.Now()
	out := newWriter(w, v.s.Stall, v.release)
	leave := v.door.figures.enter(v)
	ok := false
	defer func() {
		out.end()
		leave(out.status, time.Since(began), ok)
	}()
	out.limits = http.Header{}
	v.s.Answers.limits(out.limits, &v.verdict)
	maps.Copy(w.Header(), out.limits) // of an answer without a status: a handler that returns, an upgrade
	r = r.WithContext(identity.With(r.Context(), v.id))
	if v.s.Stall > 0 && r.Body != nil && r.Body != http.NoBody {
		out.body = &body{ReadCloser: r.Body, control: out.control, stall: v.s.Stall}
		r.Body = out.body
	}
	next.ServeHTTP(out, r)
	ok = true
}

// refuse answers in place of the handler.
func (v *visit) refuse(w http.ResponseWriter, p *Problem) {
	v.door.figures.refused(v, p)
	v.s.Answers.limits(w.Header(), &v.verdict)
	p.write(w, v.door.spread(v.s.Answers.Spread))
}

// spread returns a whole number of seconds, at most the setting's.
func (d *Door) spread(most time.Duration) int64 {
	n := int64(most / time.Second)
	if n <= 0 {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rand.Int64N(n + 1)
}
