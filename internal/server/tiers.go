package server

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/limit"
)

// tierView is a tier of the configuration.
type tierView struct {
	Name    string `json:"name"`
	Weight  int    `json:"weight"`
	Rate    string `json:"rate"`
	Burst   int64  `json:"burst,omitempty"`
	Cap     int    `json:"cap"`
	Backlog int64  `json:"backlog"` // bytes

	Subscriptions int `json:"subscriptions"` // that a tenant may have
}

func viewTier(t *fanout.Tier) tierView {
	v := tierView{Name: t.Name, Weight: max(t.Weight, 1), Rate: cmp.Or(t.Rate, "unlimited"), Cap: cmp.Or(t.Cap, fanout.DefaultCap), Backlog: cmp.Or(t.Backlog, fanout.DefaultBacklog),
		Subscriptions: cmp.Or(t.Subscriptions, fanout.DefaultSubscriptions)}
	if rate, err := limit.ParseContract(t.Rate, t.Burst); err == nil && !rate.IsUnlimited() {
		v.Burst = rate.Burst()
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
		func(t *numberedTier) tierView { return viewTier(&t.Tier) }))
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
	return reply(w, http.StatusOK, viewTier(&t))
}

// fixedTier answers every change: tiers are the configuration's.
func (s *Server) fixedTier(http.ResponseWriter, *http.Request) error {
	return &problem{code: conflict, detail: "tiers are read from the configuration, and changed there"}
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
