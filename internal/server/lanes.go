package server

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// account is the account of a lane, a tenant or the platform: every term is counted where it
// happens, and balanced says whether offered is the sum of the others.
type account struct {
	Offered   uint64 `json:"offered"`
	Delivered uint64 `json:"delivered"`
	Parked    uint64 `json:"parked"`
	Dead      uint64 `json:"dead"`
	InFlight  uint64 `json:"in_flight"`
	Cancelled uint64 `json:"cancelled"`
	Dropped   uint64 `json:"dropped"`
	Balanced  bool   `json:"balanced"`
}

func viewAccount(c engine.Counters) account {
	return account{c.Offered, c.Delivered, c.Parked, c.Dead, c.InFlight, c.Cancelled, c.Dropped, c.Balanced()}
}

// laneView is a lane as the API shows it.
type laneView struct {
	Subscription string  `json:"subscription"`
	Tenant       string  `json:"tenant"`
	Host         string  `json:"host"` // scheme://host:port
	Rate         string  `json:"rate"`
	Burst        int64   `json:"burst,omitempty"`
	Remaining    int64   `json:"remaining"` // tokens; -1 where there is no rate
	Cap          int     `json:"cap"`
	Account      account `json:"account"`
	Breaker      string  `json:"breaker"`
	Blocked      string  `json:"blocked,omitempty"` // why the next one does not go now
	Paused       bool    `json:"paused"`
	Disabled     bool    `json:"disabled"`
	PausedFor    string  `json:"paused_for,omitempty"` // what is left of the endpoint's own pause
	Ramp         int     `json:"ramp,omitempty"`
	Stopped      int     `json:"stopped,omitempty"` // queues of an ordered lane behind a dead letter
	MeanSlotMS   float64 `json:"mean_slot_ms"`
	P99MS        float64 `json:"p99_ms"` // of successes

	Recommended       int    `json:"recommended_cap,omitempty"` // by Little's law; absent: too little was measured
	RecommendedReason string `json:"recommended_cap_reason"`
}

func viewLane(l *fanout.LaneStatus) laneView {
	advice := l.Advice()
	v := laneView{
		Subscription: l.Subscription, Tenant: l.TenantID, Host: l.HostName, Rate: l.Rate, Burst: l.Burst,
		Remaining: l.Tokens, Cap: l.Cap, Account: viewAccount(l.Counters), Breaker: l.Breaker.String(),
		Paused: l.Paused, Disabled: l.Disabled, Ramp: l.Ramp, Stopped: l.Stopped, MeanSlotMS: milli(l.MeanSlot), P99MS: milli(l.P99),
		Recommended: advice.Cap, RecommendedReason: advice.Why,
	}
	if l.Rate == "unlimited" {
		v.Burst, v.Remaining = 0, -1
	}
	if l.PausedFor > 0 {
		v.PausedFor = l.PausedFor.Round(time.Millisecond).String()
	}
	if l.Counters.Parked > 0 && l.Blocked != engine.None {
		v.Blocked = l.Blocked.String()
	}
	return v
}

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (s *Server) listLanes(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	c := callerOf(r)
	lanes := s.fanout.Lanes
	if c.role == tenant { // what it asks for costs nobody else
		lanes = func() []fanout.LaneStatus { return s.fanout.LanesOf(c.of) }
	}
	return reply(w, http.StatusOK, pageOf(q, lanes(),
		func(l *fanout.LaneStatus) uint64 { return uint64(l.Lane) },
		func(l *fanout.LaneStatus) bool {
			return q.of(c, l.TenantID) && (len(q.words) == 0 || q.hasReason(viewLane(l).Blocked))
		},
		viewLane))
}

func (s *Server) getLane(w http.ResponseWriter, r *http.Request) error {
	l, ok := s.fanout.Lane(r.PathValue("subscription"))
	if !ok || l.Removed || !callerOf(r).sees(l.TenantID) {
		return &problem{code: notFound, detail: nothingThere}
	}
	return reply(w, http.StatusOK, viewLane(&l))
}

// accountView is the platform's account, and a page of its tenants'.
type accountView struct {
	account
	Tenants page[tenantAccount] `json:"tenants"`
}

type tenantAccount struct {
	Tenant string `json:"tenant"`
	account
	BacklogBytes int64 `json:"backlog_bytes"`
	BacklogQuota int64 `json:"backlog_quota"`
}

// account is GET /v1/account: of the platform or, for a tenant's key, its own. Sum and tenants are of one instant.
func (s *Server) account(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	c := callerOf(r)
	var all []fanout.TenantStatus
	if c.role != tenant {
		all = s.fanout.Tenants()
	} else if own, ok := s.fanout.TenantOf(c.of); ok {
		all = append(all, own)
	}
	slices.SortFunc(all, func(a, b fanout.TenantStatus) int { return cmp.Compare(a.Tenant, b.Tenant) })
	var sum engine.Counters
	balanced := true
	for i := range all {
		sum = sum.Plus(all[i].Counters)
		balanced = balanced && all[i].Counters.Balanced()
	}
	v := accountView{account: viewAccount(sum)}
	v.Balanced = v.Balanced && balanced
	v.Tenants = pageOf(q, all,
		func(t *fanout.TenantStatus) uint64 { return uint64(t.Tenant) },
		func(t *fanout.TenantStatus) bool { return q.of(c, t.TenantID) },
		func(t *fanout.TenantStatus) tenantAccount {
			return tenantAccount{t.TenantID, viewAccount(t.Counters), t.Bytes, t.Quota}
		})
	return reply(w, http.StatusOK, v)
}

// deliveryView is one record of the ledger.
type deliveryView struct {
	Position uint64     `json:"position"` // of the trigger
	Kind     string     `json:"kind"`
	Attempt  uint32     `json:"attempt"`
	Status   uint16     `json:"status,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	TookMS   float64    `json:"took_ms,omitempty"`
	At       time.Time  `json:"at"`
	Due      *time.Time `json:"due,omitempty"`
	Count    uint32     `json:"count,omitempty"` // of a record about several
	Detail   string     `json:"detail,omitempty"`
}

func viewDelivery(rec *journal.Record) deliveryView {
	v := deliveryView{
		Position: uint64(rec.Position), Kind: rec.Kind.String(), Attempt: rec.Attempt, Status: rec.Status,
		TookMS: milli(rec.Took), At: rec.At.UTC(), Count: rec.N, Detail: rec.Detail,
	}
	if rec.Reason != engine.None {
		v.Reason = rec.Reason.String()
	}
	if !rec.Due.IsZero() {
		v.Due = new(rec.Due.UTC())
	}
	return v
}

// ledgerSlack is by how much a record may be older than the one before it in the log.
const ledgerSlack = time.Minute

// listDeliveries is the ledger of one subscription, newest first; ?after= goes on below.
func (s *Server) listDeliveries(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	sub, ok := s.registry.Subscription(r.PathValue("id"))
	if !ok || !callerOf(r).sees(sub.Tenant) {
		return &problem{code: notFound, detail: nothingThere}
	}
	recs, next, err := s.journal.Deliveries(r.Context(), engine.LaneID(sub.Lane), q.after, q.limit)
	if err != nil {
		return err
	}
	p := page[deliveryView]{Items: []deliveryView{}}
	for i := range recs {
		if v := viewDelivery(&recs[i]); q.has("kind", v.Kind) && q.hasReason(v.Reason) && q.during(v.At) {
			p.Items = append(p.Items, v)
		}
	}
	if n := len(recs); n > 0 && recs[n-1].At.Add(ledgerSlack).Before(q.since) {
		next = 0 // what is older is not asked for
	}
	if next != 0 {
		p.Next = strconv.FormatUint(next, 10)
	}
	return reply(w, http.StatusOK, p)
}
