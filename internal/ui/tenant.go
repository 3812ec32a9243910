package ui

import (
	"net/http"
	"slices"
	"time"

	"github.com/fairlane-dev/fairlane/client"
)

// tenantView is what a tenant sees of itself, and an administrator of it.
type tenantView struct {
	Tenant client.Tenant
	Own    client.Terms
	Bytes  int64
	Quota  int64
	Full   int // percent of the quota
	Lanes  []ownLane
	Next   string // of the lanes
	Dead   client.Page[client.DeadLetter]

	Link     string // a signed one, just made
	Until    time.Time
	Life     string // as it was asked for
	Lives    []life
	LinkActs bool

	Revoked bool // its links, just now
}

// ownLane is one subscription of the tenant.
type ownLane struct {
	client.Lane
	ComesBack string
	Used      int
	Left      int
}

func (u *UI) tenantOf(v *visit) (*view, error) { return u.ownView(v, v.PathValue("tenant")) }

func (u *UI) ownView(v *visit, tenant string) (*view, error) {
	p, err := u.readTenant(v, tenant)
	if err != nil {
		return nil, err
	}
	nav := "overview"
	if v.who.Admin() {
		nav = "lanes"
	}
	return &view{page: "tenant", Title: "Tenant " + tenant, Nav: nav, Data: p}, nil
}

func (u *UI) readTenant(v *visit, tenant string) (*tenantView, error) {
	p := &tenantView{}
	if err := u.call(v, "GET", "/v1/tenants"+path(tenant), nil, &p.Tenant); err != nil {
		return nil, err
	}
	var a client.Account
	if err := u.call(v, "GET", "/v1/account?tenant="+escape(tenant), nil, &a); err != nil {
		return nil, err
	}
	for _, t := range a.Tenants.Items {
		p.Own, p.Bytes, p.Quota = t.Terms, t.BacklogBytes, t.BacklogQuota
		p.Full = percent(float64(t.BacklogBytes), float64(t.BacklogQuota))
	}
	var l client.Page[client.Lane]
	if err := u.call(v, "GET", "/v1/lanes?limit=50&tenant="+escape(tenant)+and("after", v.URL.Query().Get("after")), nil, &l); err != nil {
		return nil, err
	}
	p.Next = l.Next
	for i := range l.Items {
		p.Lanes = append(p.Lanes, u.ownLane(&l.Items[i]))
	}
	return p, u.call(v, "GET", "/v1/dead?limit=10&tenant="+escape(tenant), nil, &p.Dead)
}

func (u *UI) ownLane(l *client.Lane) ownLane {
	o := ownLane{Lane: *l, Used: percent(float64(l.Account.InFlight), float64(l.Cap)), Left: percent(float64(l.Remaining), float64(l.Burst))}
	if status, ok := u.o.Platform.Lane(l.Subscription); ok {
		o.ComesBack = comesBack(&status)
	}
	return o
}

// life is a choice of how long a link is good.
type life struct {
	Name, Words string
	last        time.Duration
}

var lives = []life{{"1h", "an hour", time.Hour}, {"1d", "a day", 24 * time.Hour}, {"7d", "a week", 7 * 24 * time.Hour}, {"90d", "90 days", maxLinkLife}}

// showLink makes a signed link. That changes nothing, so it is a question and not an act.
func (u *UI) showLink(v *visit) (*view, error) {
	tenant := v.PathValue("tenant")
	p := &tenantView{}
	if err := u.call(v, "GET", "/v1/tenants"+path(tenant), nil, &p.Tenant); err != nil {
		return nil, err
	}
	q := v.URL.Query()
	p.Revoked, p.Lives, p.Life, p.LinkActs = q.Has("revoked"), lives, q.Get("life"), q.Get("may") == "act"
	if i := slices.IndexFunc(lives, func(l life) bool { return l.Name == p.Life }); i >= 0 {
		p.Until = time.Now().Add(lives[i].last).Truncate(time.Second)
		p.Link = "/ui/t/" + u.newLink(tenant, p.LinkActs, p.Until) + "/"
	}
	return &view{page: "link", Title: "Link for " + tenant, Nav: "lanes", Data: p}, nil
}

// revokeLinks ends the links of a tenant.
func (u *UI) revokeLinks(v *visit) (string, error) {
	if v.PostForm.Get("sure") != "yes" {
		return "", &apiError{Status: http.StatusUnprocessableEntity, Title: "Nothing was revoked", Detail: "tick the box: whoever has a link of this tenant must be given a new one"}
	}
	tenant := path(v.PathValue("tenant"))
	return "/tenants" + tenant + "/link?revoked", u.call(v, http.MethodPost, "/v1/tenants"+tenant+"/links/revoke", nil, nil)
}

// rotated is a new secret, shown once.
type rotated struct {
	Subscription string
	Secret       string
	Overlap      string
}

// rotate gives a subscription a new secret; the old one goes on signing for the overlap.
func (u *UI) rotate(v *visit) (*view, error) {
	id := v.PathValue("subscription")
	p := rotated{Subscription: id, Overlap: v.PostFormValue("overlap")}
	if v.PostFormValue("sure") != "yes" {
		return nil, &apiError{Status: http.StatusUnprocessableEntity, Title: "Nothing was changed", Detail: "tick the box: the receiver must learn the new secret before the old one ends"}
	}
	var got struct {
		Secret string `json:"secret"`
	}
	if err := u.call(v, http.MethodPost, "/v1/subscriptions"+path(id)+"/rotate", map[string]string{"overlap": p.Overlap}, &got); err != nil {
		return nil, err
	}
	p.Secret = got.Secret
	return &view{page: "rotated", Title: "New secret", Nav: "lanes", Data: &p}, nil
}
