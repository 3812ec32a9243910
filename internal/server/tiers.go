package server

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"

	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/limit"
)

var tierNameForm = regexp.MustCompile(`\A[a-z0-9][a-z0-9_-]{0,63}\z`)

const tierNameRule = "1 to 64 of a-z, 0-9, _ and -, beginning with a letter or a digit"

// tierView is a tier as the API shows it.
type tierView struct {
	Name    string       `json:"name"`
	Weight  int          `json:"weight"`
	Rate    string       `json:"rate"`
	Burst   int64        `json:"burst,omitempty"`
	Cap     int          `json:"cap"`
	CapAuto *capAutoView `json:"cap_auto,omitempty"`
	Backlog int64        `json:"backlog"` // bytes
	Inbound *inboundView `json:"inbound,omitempty"`

	Subscriptions int  `json:"subscriptions"` // that a tenant may have
	Configured    bool `json:"configured"`    // by the configuration: it is changed there
}

// tierIn is what a change of a tier reads.
type tierIn struct {
	Name    string       `json:"name,omitempty"` // the path's
	Weight  int          `json:"weight,omitempty"`
	Rate    string       `json:"rate,omitempty" also:"integer"`
	Burst   int64        `json:"burst,omitempty"`
	Cap     int          `json:"cap,omitempty"`
	CapAuto *capAutoView `json:"cap_auto,omitempty"`
	Backlog int64        `json:"backlog,omitempty"` // bytes
	Inbound *inboundView `json:"inbound,omitempty"`

	Subscriptions int `json:"subscriptions,omitempty"`
}

// capAutoView bounds the caps that the service sets by itself.
type capAutoView struct {
	Min int `json:"min,omitempty"`
	Max int `json:"max"`
}

// inboundView is what a tenant may post.
type inboundView struct {
	Rate  string `json:"rate,omitempty" also:"integer"`
	Burst int64  `json:"burst,omitempty"`
	Share int    `json:"share,omitempty"`
}

func (s *Server) viewTier(t *fanout.Tier) tierView {
	v := tierView{Name: t.Name, Weight: max(t.Weight, 1), Rate: cmp.Or(t.Rate, "unlimited"), Cap: cmp.Or(t.Cap, fanout.DefaultCap), Backlog: cmp.Or(t.Backlog, fanout.DefaultBacklog),
		Subscriptions: cmp.Or(t.Subscriptions, fanout.DefaultSubscriptions), Configured: s.keeper == nil || s.keeper.configured(t.Name)}
	if rate, err := limit.ParseContract(t.Rate, t.Burst); err == nil && !rate.IsUnlimited() {
		v.Burst = rate.Burst()
	}
	if t.CapAuto.Max > 0 {
		v.CapAuto = new(capAutoView(t.CapAuto))
	}
	if in := t.Inbound; in != (fanout.Inbound{}) {
		v.Inbound = &inboundView{Rate: in.Rate, Burst: in.Burst, Share: in.Share}
	}
	return v
}

func (s *Server) listTiers(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(*s.tiers.Load()))
	all := make([]numberedTier, len(names))
	for i, name := range names {
		all[i] = numberedTier{uint64(i) + 1, (*s.tiers.Load())[name]}
	}
	return reply(w, http.StatusOK, pageOf(q, all,
		func(t *numberedTier) uint64 { return t.number },
		func(*numberedTier) bool { return true },
		func(t *numberedTier) tierView { return s.viewTier(&t.Tier) }))
}

// numberedTier has its place in the list.
type numberedTier struct {
	number uint64
	fanout.Tier
}

func (s *Server) getTier(w http.ResponseWriter, r *http.Request) error {
	t, ok := (*s.tiers.Load())[r.PathValue("name")]
	if !ok {
		return &problem{code: notFound, detail: nothingThere}
	}
	return reply(w, http.StatusOK, s.viewTier(&t))
}

// putTier is PUT /v1/tiers/{name}: it creates or replaces; what is absent has its default.
func (s *Server) putTier(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, false)
	if err != nil {
		return err
	}
	t := fanout.Tier{Name: r.PathValue("name")}
	if !tierNameForm.MatchString(t.Name) {
		o.bad("name", "must be "+tierNameRule)
	}
	o.read("name", nil, parseText(new(string), "the path's, or absent", func(name string) bool { return name == t.Name }))
	readTier(o, &t)
	if err := o.err(); err != nil {
		return err
	}
	return s.alone(w, r, func() (int, any, error) {
		if err := s.changeable(t.Name); err != nil {
			return 0, nil, err
		}
		_, exists := (*s.tiers.Load())[t.Name]
		if err := s.keeper.putTier(r.Context(), t); err != nil {
			return 0, nil, err
		}
		status := http.StatusOK
		if !exists {
			status = http.StatusCreated
			w.Header().Set("Location", "/v1/tiers/"+t.Name)
		}
		return status, s.viewTier(&t), nil
	})
}

// deleteTier is DELETE /v1/tiers/{name}, of one that no tenant is in.
func (s *Server) deleteTier(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	return s.alone(w, r, func() (int, any, error) {
		if _, exists := (*s.tiers.Load())[name]; !exists {
			return 0, nil, &problem{code: notFound, detail: nothingThere}
		}
		if err := s.changeable(name); err != nil {
			return 0, nil, err
		}
		for _, t := range s.registry.Tenants() {
			if !t.Deleted && t.Tier == name {
				return 0, nil, refuse(conflict, "name", "is the tier of tenant "+t.ID+"; move its tenants to another")
			}
		}
		if err := s.keeper.dropTier(r.Context(), name); err != nil {
			return 0, nil, err
		}
		return http.StatusNoContent, nil, nil
	})
}

// changeable refuses a tier of the configuration.
func (s *Server) changeable(name string) error {
	if s.keeper == nil || s.keeper.configured(name) {
		return refuse(conflict, "name", "is a tier of the configuration, and is changed there: tiers."+clip(name))
	}
	return nil
}

// readTier reads what can be changed.
func readTier(o *object, t *fanout.Tier) {
	o.read("weight", nil, parseWhole(1, 1000, func(n int64) { t.Weight = int(n) }))
	o.read("rate", nil, parseRate(&t.Rate))
	o.read("burst", nil, parseWhole(1, maxBurst, func(n int64) { t.Burst = n }))
	o.read("cap", nil, parseWhole(1, maxCap, func(n int64) { t.Cap = int(n) }))
	o.inner("cap_auto", nil, func(in *object) {
		in.read("min", nil, parseWhole(1, maxCap, func(n int64) { t.CapAuto.Min = int(n) }))
		in.read("max", nil, parseWhole(1, maxCap, func(n int64) { t.CapAuto.Max = int(n) }))
		in.require("max")
		if in.has("max") && t.CapAuto.Max < t.CapAuto.Min {
			in.bad("max", "must be at least min")
		}
	})
	o.read("backlog", nil, parseWhole(1<<20, 64<<40, func(n int64) { t.Backlog = n }))
	o.read("subscriptions", nil, parseWhole(1, 1_000_000, func(n int64) { t.Subscriptions = int(n) }))
	o.inner("inbound", nil, func(in *object) {
		in.read("rate", nil, parseRate(&t.Inbound.Rate))
		in.read("burst", nil, parseWhole(1, maxBurst, func(n int64) { t.Inbound.Burst = n }))
		in.read("share", nil, parseWhole(1, maxCap, func(n int64) { t.Inbound.Share = int(n) }))
		settleBurst(in, &t.Inbound.Rate, &t.Inbound.Burst)
	})
	settleBurst(o, &t.Rate, &t.Burst)
}

// withinTier lets a tenant's own key lower the limits of its tier and not raise them.
func (s *Server) withinTier(o *object, c *caller, sub *journal.Subscription) {
	if c.role != tenant {
		return
	}
	t, _ := s.registry.Tenant(sub.Tenant)
	tier := (*s.tiers.Load())[t.Tier]
	if most := cmp.Or(tier.Cap, fanout.DefaultCap); o.has("cap") && most > 0 && sub.Limits.Cap != nil && *sub.Limits.Cap > most {
		o.bad("cap", fmt.Sprintf("must be at most the tier's, %d", most))
	}
	most, err := limit.ParseContract(tier.Rate, tier.Burst)
	if err != nil || most.IsUnlimited() || sub.Limits.Rate == "" {
		return
	}
	rate, err := limit.ParseContract(sub.Limits.Rate, sub.Limits.Burst)
	switch {
	case err != nil || rate.IsPaused():
	case rate.IsUnlimited() || rate.PerSecond() > most.PerSecond():
		o.bad("rate", "must be at most the tier's, "+tier.Rate)
	case rate.Burst() > most.Burst():
		o.bad("burst", fmt.Sprintf("must be at most the tier's, %d", most.Burst()))
	}
}
