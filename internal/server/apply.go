package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

const (
	maxApply    = 16 << 20 // bytes of a body: some 30,000 subscriptions
	maxProblems = 100      // of one answer
)

// applyIn is what POST /v1/apply reads: objects as they shall be.
type applyIn struct {
	Tiers         []tierIn          `json:"tiers,omitempty"` // each with a name
	Tenants       []tenantIn        `json:"tenants,omitempty"`
	Subscriptions []subscriptionIn  `json:"subscriptions,omitempty"` // each with a name
	NewSecrets    map[string]string `json:"new_secrets,omitempty"`   // by tenant/name: for what is new and names no secrets
	Prune         bool              `json:"prune,omitempty"`         // remove named subscriptions of these tenants that are not listed
	DryRun        bool              `json:"dry_run,omitempty"`       // check and plan, change nothing
}

// planView is what was done, or what a dry run would do.
type planView struct {
	DryRun    bool         `json:"dry_run"`
	Changes   []changeView `json:"changes"` // in the order of their doing
	Unchanged int          `json:"unchanged"`
}

// changeView is one object that changes.
type changeView struct {
	Act    string            `json:"act" enum:"create,change,remove"`
	Kind   string            `json:"kind" enum:"tier,tenant,subscription"`
	Tenant string            `json:"tenant,omitempty"`
	Name   string            `json:"name,omitempty"` // of a tier or a subscription
	ID     string            `json:"id,omitempty"`   // of a subscription that exists
	Fields []fieldChangeView `json:"fields,omitempty"`
	Secret string            `json:"secret,omitempty"` // of a new subscription that named none; once
}

// fieldChangeView is a field of a change. What is never shown has its name alone.
type fieldChangeView struct {
	Field string `json:"field"`
	From  any    `json:"from,omitempty"`
	To    any    `json:"to,omitempty"`
}

const (
	actCreate = "create"
	actChange = "change"
	actRemove = "remove"

	kindTier         = "tier"
	kindTenant       = "tenant"
	kindSubscription = "subscription"
)

// plan is what an apply comes to. Once it has no problems everything in it has been checked against every rule,
// under the lock of all changes: what can still fail is the log alone.
type plan struct {
	s         *Server
	prune     bool
	secrets   map[string][]byte          // for new subscriptions that name none, by tenant/name
	tiers     map[string]fanout.Tier     // all, as they will be
	made      map[string]bool            // those of the request
	tenants   map[string]*journal.Tenant // those of the request, as they will be
	subs      []*planned
	listed    map[[2]string]bool       // tenants and names of subs
	lanes     map[[2]string]int        // tenants and lanes: subscriptions that share them when all is done
	counts    map[string]fanout.Beside // by tenant: what it has when all is done; of Hosts, what is added at most
	changes   []change
	unchanged int
	problems  []fieldRule
}

// planned is one subscription of the request.
type planned struct {
	o      *object
	exists bool
	old    journal.Subscription // if it exists
	next   journal.Subscription
	made   string // the text of a secret that nobody named
}

// change is one write.
type change struct {
	changeView
	tier   *fanout.Tier
	tenant *journal.Tenant
	sub    *planned
}

// apply is POST /v1/apply. Everything is checked before the first write. A crash in the middle leaves whole
// objects, some as they were: the same request again does the rest.
func (s *Server) apply(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readSized(w, r, false, maxApply)
	if err != nil {
		return err
	}
	p := &plan{s: s, secrets: map[string][]byte{}, made: map[string]bool{}, tenants: map[string]*journal.Tenant{}, listed: map[[2]string]bool{}, lanes: map[[2]string]int{}, counts: map[string]fanout.Beside{}}
	var tiers, tenants, subs []json.RawMessage
	dry := false
	o.read("tiers", nil, parseArray(&tiers))
	o.read("tenants", nil, parseArray(&tenants))
	o.read("subscriptions", nil, parseArray(&subs))
	o.read("new_secrets", nil, parseNewSecrets(p.secrets))
	o.read("prune", nil, parseBool(&p.prune))
	o.read("dry_run", nil, parseBool(&dry))
	if err := o.err(); err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // as long as the writes take
	return s.alone(w, r, func() (int, any, error) {
		p.make(tiers, tenants, subs)
		if len(p.problems) > 0 {
			return 0, nil, (&object{problems: p.problems[:min(len(p.problems), maxProblems)]}).refusal()
		}
		if !dry {
			if err := p.do(r); err != nil {
				return 0, nil, err
			}
		}
		return http.StatusOK, p.view(dry), nil
	})
}

// parseArray takes a list of anything.
func parseArray(to *[]json.RawMessage) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		if raw[0] != '[' || json.Unmarshal(raw, to) != nil {
			return "a list"
		}
		return ""
	}
}

// parseNewSecrets takes secrets by tenant and name.
func parseNewSecrets(to map[string][]byte) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		const rule = `an object of secrets, "whsec_" and the base64 of 24 to 64 bytes, by tenant and name, such as "acme/orders"`
		in, bad := parseObject(raw, "")
		if bad != "" || len(in.problems) > 0 {
			return rule
		}
		for name, value := range in.fields {
			secret, is := text(value)
			key, err := delivery.ParseSecret(secret)
			if !is || err != nil {
				return rule
			}
			to[name] = key
		}
		return ""
	}
}

func (p *plan) make(tiers, tenants, subs []json.RawMessage) {
	p.tiers = maps.Clone(*p.s.tiers.Load())
	for i, raw := range tiers {
		p.planTier(fmt.Sprintf("tiers[%d]", i), raw)
	}
	if len(p.made) > 0 && len(p.problems) == 0 {
		if err := p.s.keeper.checkTiers(p.tiers); err != nil {
			p.problems = append(p.problems, fieldRule{"tiers", problemOf(err).detail})
		}
	}
	for i, raw := range tenants {
		p.tenant(fmt.Sprintf("tenants[%d]", i), raw)
	}
	for i, raw := range subs {
		p.subscription(fmt.Sprintf("subscriptions[%d]", i), raw)
	}
	for _, at := range slices.Sorted(maps.Keys(p.secrets)) {
		if tenantID, name, _ := strings.Cut(at, "/"); !p.listed[[2]string{tenantID, name}] {
			p.problems = append(p.problems, fieldRule{"new_secrets", "names " + clip(at) + ", which is not among subscriptions"})
		}
	}
	for _, sub := range p.s.registry.Subscriptions() {
		p.present(&sub)
	}
	for _, d := range p.subs {
		p.check(d)
	}
	p.ordered()
}

// object reads one object of a list; nil if it is none.
func (p *plan) object(at string, raw json.RawMessage) *object {
	o, rule := parseObject(raw, at+".")
	if rule != "" {
		p.problems = append(p.problems, fieldRule{at, rule})
		return nil
	}
	return o
}

// wrong collects what is wrong with an object, and reports whether anything is.
func (p *plan) wrong(o *object, err error) bool {
	var field *journal.FieldError
	if errors.As(err, &field) {
		o.bad(field.Field, field.Rule)
	} else if err != nil {
		o.bad("", problemOf(err).detail)
	}
	_ = o.err() // collects what is unknown
	p.problems = append(p.problems, o.problems...)
	return len(o.problems) > 0
}

func (p *plan) planTier(at string, raw json.RawMessage) {
	o := p.object(at, raw)
	if o == nil {
		return
	}
	var t fanout.Tier
	o.read("name", nil, parseText(&t.Name, tierNameRule, tierNameForm.MatchString))
	o.require("name")
	readTier(o, &t)
	if p.made[t.Name] {
		o.bad("name", "stands in the list before")
	}
	var fixed *problem
	if t.Name != "" && errors.As(p.s.changeable(t.Name), &fixed) {
		o.bad("name", fixed.fields[0].Rule)
	}
	if p.wrong(o, nil) {
		return
	}
	old, exists := p.tiers[t.Name]
	p.tiers[t.Name], p.made[t.Name] = t, true
	p.add(change{changeView: changeView{Act: actCreate, Kind: kindTier, Name: t.Name}, tier: &t}, exists, differences(p.s.viewTier(&old), p.s.viewTier(&t)))
}

func (p *plan) tenant(at string, raw json.RawMessage) {
	o := p.object(at, raw)
	if o == nil {
		return
	}
	var id string
	o.read("id", nil, parseText(&id, tenantIDRule, validTenantID))
	o.require("id")
	old, exists := p.s.registry.Tenant(id)
	t := journal.Tenant{ID: id, Tier: "default", Suspended: old.Suspended, Grants: []journal.Grant{{}}}
	switch {
	case old.Deleted:
		o.bad("id", "was used before; ids are never given again")
	case id != "" && p.tenants[id] != nil:
		o.bad("id", "stands in the list before")
	case id != "":
		p.tenants[id] = &t
	}
	readTenantFields(o, &t, p.tiers)
	var err error
	if len(o.problems) == 0 {
		err = p.s.fanout.CheckTenant(t, p.tiers)
	}
	if p.wrong(o, err) {
		return
	}
	p.add(change{changeView: changeView{Act: actCreate, Kind: kindTenant, Tenant: id}, tenant: &t}, exists, differences(viewTenant(&old), viewTenant(&t)))
}

// add adds a change to what does not exist, or differs.
func (p *plan) add(c change, exists bool, fields []fieldChangeView) {
	switch {
	case !exists:
	case len(fields) == 0:
		p.unchanged++
		return
	default:
		c.Act, c.Fields = actChange, fields
	}
	p.changes = append(p.changes, c)
}

func (p *plan) subscription(at string, raw json.RawMessage) {
	o := p.object(at, raw)
	if o == nil {
		return
	}
	var tenantID, name string
	o.read("tenant", nil, parseText(&tenantID, "the id of a tenant", validTenantID))
	if o.has("name") {
		name, _ = text(o.fields["name"]) // desired reads it again, strictly
	}
	o.require("tenant", "name", "url", "topics")
	if tenantID != "" && p.tier(tenantID) == "" {
		o.bad("tenant", "names "+tenantID+", which does not exist and is not among tenants")
	}
	if key := [2]string{tenantID, name}; p.listed[key] && name != "" {
		o.bad("name", "stands in the list before, for this tenant")
	} else {
		p.listed[key] = true
	}
	d := &planned{o: o}
	d.old, d.exists = p.s.registry.Named(tenantID, name)
	d.next = p.s.desired(o, tenantID, name, d.old)
	if !d.exists && len(d.next.Secrets)+len(d.next.Requests.Pairs) == 0 {
		key := p.secrets[tenantID+"/"+name]
		if key == nil {
			key = delivery.NewSecret()
		}
		d.next.Secrets, d.made = [][]byte{key}, delivery.FormatSecret(key)
	}
	n := p.counts[tenantID]
	if !d.exists {
		p.lanes[[2]string{tenantID, d.next.Group}]++
		n.Live++
		n.Ever++
	}
	if d.next.URL != d.old.URL {
		n.Hosts++
	}
	p.counts[tenantID] = n
	p.subs = append(p.subs, d)
}

// tier is that which a tenant will be in; "" for a tenant that will not exist.
func (p *plan) tier(tenantID string) string {
	if t := p.tenants[tenantID]; t != nil {
		return t.Tier
	}
	if t, ok := p.s.registry.Tenant(tenantID); ok && !t.Deleted {
		return t.Tier
	}
	return ""
}

// desired is the subscription that o describes: what it does not say has its default, but for secrets and paused,
// which stay as they are in old, and the service's own disabled, which a new URL takes back.
func (s *Server) desired(o *object, tenantID, name string, old journal.Subscription) journal.Subscription {
	next := journal.Subscription{
		ID: old.ID, Tenant: tenantID, Name: name, Secrets: old.Secrets, Paused: old.Paused, Disabled: old.Disabled, Creation: old.Creation,
		Requests: journal.Requests{Pairs: old.Requests.Pairs, Retired: old.Requests.Retired},
	}
	s.readSubscription(o, &next)
	readOrder(o, &next)
	if next.URL != old.URL {
		next.Disabled = ""
	}
	if sameKeys(next.Secrets, old.Secrets) && sameKeys(next.Requests.Pairs, old.Requests.Pairs) {
		next.Requests.Retired = old.Requests.Retired // an overlap goes on
	}
	return next
}

// present looks at a subscription that exists: a prune removes it if it has a name, and one of the request's
// tenants does not list it.
func (p *plan) present(sub *journal.Subscription) {
	n := p.counts[sub.Tenant]
	n.Ever++
	defer func() { p.counts[sub.Tenant] = n }()
	switch {
	case sub.Deleted:
	case p.prune && sub.Name != "" && p.tenants[sub.Tenant] != nil && !p.listed[[2]string{sub.Tenant, sub.Name}]:
		p.changes = append(p.changes, change{changeView: changeView{Act: actRemove, Kind: kindSubscription, Tenant: sub.Tenant, Name: sub.Name, ID: sub.ID}})
	default:
		p.lanes[[2]string{sub.Tenant, sub.Group}]++
		n.Live++
	}
}

// check holds one subscription against the rules, and adds it to the changes.
func (p *plan) check(d *planned) {
	var err error
	if len(d.o.problems) == 0 {
		beside := p.counts[d.next.Tenant]
		if !d.exists {
			beside.Live--
			beside.Ever--
		}
		if d.next.Group != "" {
			beside.Lane = p.lanes[[2]string{d.next.Tenant, d.next.Group}] - 1
		}
		if d.next.URL != d.old.URL {
			beside.Hosts--
		}
		tier, ok := p.tiers[p.tier(d.next.Tenant)]
		if !ok {
			tier = p.tiers["default"]
		}
		err = p.s.fanout.CheckSubscription(d.next, tier, beside)
	}
	if p.wrong(d.o, err) {
		return
	}
	c := change{changeView: changeView{Act: actCreate, Kind: kindSubscription, Tenant: d.next.Tenant, Name: d.next.Name, ID: d.old.ID}, sub: d}
	p.add(c, d.exists, subscriptionDifferences(&d.old, &d.next))
}

// ordered puts removals first, which free names and places on lanes, then tiers, tenants and subscriptions.
func (p *plan) ordered() {
	rank := func(c *change) int {
		switch {
		case c.Act == actRemove:
			return 0
		case c.Kind == kindTier:
			return 1
		case c.Kind == kindTenant:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(p.changes, func(a, b change) int { return rank(&a) - rank(&b) })
}

func (p *plan) view(dry bool) planView {
	v := planView{DryRun: dry, Changes: make([]changeView, len(p.changes)), Unchanged: p.unchanged}
	for i := range p.changes {
		v.Changes[i] = p.changes[i].changeView
	}
	return v
}

// do writes the changes.
func (p *plan) do(r *http.Request) error {
	for i := range p.changes {
		err := r.Context().Err()
		if err == nil {
			err = p.write(r, &p.changes[i])
		}
		if err != nil {
			refusal := *problemOf(err)
			refusal.detail = fmt.Sprintf("%d of %d changes are made; apply again to do the rest: %s", i, len(p.changes), refusal.detail)
			return &refusal
		}
	}
	return nil
}

// write does one change, and keeps a record of it.
func (p *plan) write(r *http.Request, c *change) error {
	act := journal.Act{Key: callerOf(r).id, Method: http.MethodPut, Path: "/v1/tenants/" + c.Tenant, Status: http.StatusOK}
	for _, f := range c.Fields {
		act.Fields = append(act.Fields, f.Field)
	}
	var err error
	switch {
	case c.tier != nil:
		act.Path = "/v1/tiers/" + c.Name
		err = p.s.keeper.putTier(r.Context(), *c.tier)
	case c.tenant != nil:
		_, err = p.s.fanout.PutTenant(r.Context(), *c.tenant)
	case c.sub == nil:
		act.Method = http.MethodDelete
		err = p.s.fanout.DeleteSubscription(r.Context(), c.ID)
	default:
		err = p.writeSubscription(r, c)
	}
	if err != nil {
		return err
	}
	if c.Kind == kindSubscription {
		act.Path = "/v1/subscriptions/" + c.ID
	}
	act.At = now()
	return p.s.access.Audit(context.WithoutCancel(r.Context()), act) // the caller may have gone: the change is made
}

func (p *plan) writeSubscription(r *http.Request, c *change) error {
	next := c.sub.next
	if c.sub.exists { // what the service itself has changed since stays
		current, ok := p.s.registry.Subscription(next.ID)
		if !ok || current.Deleted {
			return fanout.ErrNotFound
		}
		next = p.s.desired(c.sub.o, next.Tenant, next.Name, current)
	}
	stored, err := p.s.fanout.PutSubscription(r.Context(), next)
	c.ID, c.Secret = stored.ID, c.sub.made
	return err
}
