package ui

import (
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlane-dev/fairlane/client"
	"github.com/fairlane-dev/fairlane/internal/fanout"
)

// filter selects dead letters, as a form has it.
type filter struct {
	Tenant, Subscription, Reason, Since, Until string
}

func readFilter(q url.Values) filter {
	get := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	return filter{get("tenant"), get("subscription"), get("reason"), instant(get("since")), instant(get("until"))}
}

// instant takes what a date field of a form sends, as UTC; anything else goes to the API as it is.
func instant(s string) string {
	for _, form := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02"} {
		if t, err := time.Parse(form, s); err == nil {
			return t.Format(time.RFC3339)
		}
	}
	return s
}

// Query is the filter in an address.
func (f filter) Query() string {
	q := url.Values{}
	for name, value := range map[string]string{"tenant": f.Tenant, "subscription": f.Subscription, "reason": f.Reason, "since": f.Since, "until": f.Until} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q.Encode()
}

// List is the address of the list that it selects. A template that has the filter behind a question mark of its own
// would escape it once more.
func (f filter) List() string { return "/dead?" + f.Query() }

// Aimed reports whether it is narrow enough to act on.
func (f filter) Aimed() bool { return f.Tenant != "" || f.Subscription != "" }

// selection is the filter as the API's acts read it.
func (f filter) selection(v *visit, dry bool) client.Selection {
	s := client.Selection{Tenant: f.Tenant, Subscription: f.Subscription, Since: f.Since, Until: f.Until, DryRun: dry}
	if s.Tenant == "" && s.Subscription == "" {
		s.Tenant = v.who.Tenant
	}
	if f.Reason != "" {
		s.Reasons = []string{f.Reason}
	}
	return s
}

// deadList is the page of dead letters.
type deadList struct {
	Filter  filter
	Reasons []string
	List    client.Page[client.DeadLetter]
	Aimed   bool
}

func deadReasons() (names []string) {
	for _, r := range fanout.Deadly {
		names = append(names, r.String())
	}
	return names
}

func (u *UI) dead(v *visit) (*view, error) {
	q := v.URL.Query()
	p := deadList{Filter: readFilter(q), Reasons: deadReasons()}
	p.Aimed = p.Filter.Aimed() || !v.who.Admin()
	query := p.Filter.Query()
	if query != "" {
		query = "&" + query
	}
	if err := u.call(v, "GET", "/v1/dead?limit=50"+query+and("after", q.Get("after")), nil, &p.List); err != nil {
		return nil, err
	}
	return &view{page: "dead", Title: "Dead letters", Nav: "dead", Data: &p}, nil
}

// letterView is one dead letter.
type letterView struct {
	client.DeadLetterDetail
	Sub     string
	Payload string
	Form    string // of what is shown of the payload
	Cut     bool
	Self    filter // selects what was accepted at its instant
}

// shownBytes bounds how much of a payload a page has.
const shownBytes = 16 << 10

func (u *UI) deadLetter(v *visit) (*view, error) {
	sub, trigger := v.PathValue("subscription"), v.PathValue("trigger")
	p := letterView{Sub: sub}
	if err := u.call(v, "GET", "/v1/subscriptions"+path(sub)+"/dead"+path(trigger), nil, &p.DeadLetterDetail); err != nil {
		return nil, err
	}
	p.Payload, p.Form, p.Cut = safeText(p.DeadLetterDetail.Payload)
	if at := p.Accepted; at != nil {
		p.Self = filter{Subscription: sub, Since: at.Format(time.RFC3339Nano), Until: at.Add(time.Microsecond).Format(time.RFC3339Nano)}
	}
	return &view{page: "letter", Title: "Dead letter " + trigger, Nav: "dead", Data: &p}, nil
}

// safeText shows bytes that an enemy may have chosen: as text if a person can read all of it, else in hex.
func safeText(b []byte) (text, form string, cut bool) {
	if len(b) > shownBytes {
		b, cut = b[:shownBytes], true
		for len(b) > shownBytes-utf8.UTFMax && !utf8.Valid(b) { // a rune may be cut in two
			b = b[:len(b)-1]
		}
	}
	odd := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\r' && r != '\t' }
	if utf8.Valid(b) && strings.IndexFunc(string(b), odd) < 0 {
		return string(b), "text", cut
	}
	return hex.Dump(b[:min(len(b), shownBytes/4)]), "bytes in hex", cut || len(b) > shownBytes/4
}

// count is what an act would do, and the question whether to.
type count struct {
	Filter filter
	Count  uint64
	Replay client.Replay
}

// countReplay is the dry run.
func (u *UI) countReplay(v *visit) (*view, error) {
	p := count{Filter: readFilter(v.URL.Query())}
	if err := u.call(v, http.MethodPost, "/v1/replays", p.Filter.selection(v, true), &p.Replay); err != nil {
		return nil, err
	}
	p.Count = p.Replay.Selected
	return &view{page: "count", Title: "Replay dead letters?", Nav: "dead", Data: &p}, nil
}

func (u *UI) replayDead(v *visit) (string, error) {
	s := readFilter(v.PostForm).selection(v, false)
	s.Rate = strings.TrimSpace(v.PostForm.Get("rate"))
	var got client.Replay
	if err := u.call(v, http.MethodPost, "/v1/replays", s, &got); err != nil {
		return "", err
	}
	return "/replays" + path(got.ID), nil
}

// askPurge is the dry run of a purge.
func (u *UI) askPurge(v *visit) (*view, error) {
	p := count{Filter: readFilter(v.URL.Query())}
	n, err := u.purge(v, p.Filter, true)
	if err != nil {
		return nil, err
	}
	p.Count = n
	return &view{page: "purge", Title: "Purge dead letters?", Nav: "dead", Data: &p}, nil
}

func (u *UI) purge(v *visit, f filter, dry bool) (uint64, error) {
	var got struct {
		Purged uint64 `json:"purged"`
	}
	err := u.call(v, http.MethodPost, "/v1/dead/purge", f.selection(v, dry), &got)
	return got.Purged, err
}

// errUnconfirmed answers a purge whose box is not ticked.
var errUnconfirmed = &apiError{Status: http.StatusUnprocessableEntity, Title: "Nothing was purged", Detail: "tick the box: what is purged cannot be brought back"}

func (u *UI) purgeDead(v *visit) (string, error) {
	if v.PostForm.Get("sure") != "yes" {
		return "", errUnconfirmed
	}
	f := readFilter(v.PostForm)
	if _, err := u.purge(v, f, false); err != nil {
		return "", err
	}
	return f.List(), nil
}

func (u *UI) deleteDead(v *visit) (string, error) {
	if v.PostForm.Get("sure") != "yes" {
		return "", errUnconfirmed
	}
	sub := v.PathValue("subscription")
	if err := u.call(v, http.MethodDelete, "/v1/subscriptions"+path(sub)+"/dead"+path(v.PathValue("trigger")), nil, nil); err != nil {
		return "", err
	}
	return "/dead?subscription=" + escape(sub), nil
}

// replays lists them, the newest first.
func (u *UI) replays(v *visit) (*view, error) {
	var l client.Page[client.Replay]
	if err := u.call(v, "GET", "/v1/replays?limit=1000", nil, &l); err != nil {
		return nil, err
	}
	for i, j := 0, len(l.Items)-1; i < j; i, j = i+1, j-1 {
		l.Items[i], l.Items[j] = l.Items[j], l.Items[i]
	}
	return &view{page: "replays", Title: "Replays", Nav: "dead", Data: &l}, nil
}

func (u *UI) replay(v *visit) (*view, error) {
	var r client.Replay
	if err := u.call(v, "GET", "/v1/replays"+path(v.PathValue("id")), nil, &r); err != nil {
		return nil, err
	}
	return &view{page: "replay", Title: "Replay " + r.ID, Nav: "dead", Data: &r, Frozen: r.State == "done"}, nil
}

func (u *UI) actReplay(v *visit) (string, error) {
	id, act := v.PathValue("id"), v.PathValue("act")
	if act != "cancel" && act != "resume" {
		return "", errNothing
	}
	return "/replays" + path(id), u.call(v, http.MethodPost, "/v1/replays"+path(id)+"/"+act, nil, nil)
}
