package server

import (
	"net/http"
	"net/url"
	"strconv"
)

// page is one slice of a list in the order of its numbers.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"` // the cursor of the next page: ?after=; absent on the last
}

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// query holds the parameters of a list.
type query struct {
	after  uint64 // items with a number below or equal are left out; meaning is the list's
	paged  bool   // after was given
	limit  int
	tenant string
}

// of reports whether a list that c asked for shows what belongs to a tenant.
func (q *query) of(c *caller, tenantID string) bool {
	return c.sees(tenantID) && (q.tenant == "" || q.tenant == tenantID)
}

// readQuery reads ?after=&limit= and, where the list takes it, &tenant=. Every other
// parameter is refused.
func readQuery(r *http.Request, withTenant bool) (query, error) {
	q := query{limit: defaultLimit}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, refuse(badRequest, "query", "must be well-formed")
	}
	for name, v := range values {
		switch {
		case len(v) > 1:
			return q, refuse(badRequest, clip(name), "must stand once")
		case name == "after":
			q.paged = true
			if q.after, err = strconv.ParseUint(v[0], 10, 63); err != nil {
				return q, refuse(badRequest, "after", "must be the next of an earlier page")
			}
		case name == "limit":
			if q.limit, err = strconv.Atoi(v[0]); err != nil || q.limit < 1 || q.limit > maxLimit {
				return q, refuse(badRequest, "limit", "must be from 1 to 1000")
			}
		case name == "tenant" && withTenant:
			if q.tenant = v[0]; !validTenantID(q.tenant) {
				return q, refuse(badRequest, "tenant", "must be "+tenantIDRule)
			}
		default:
			return q, refuse(badRequest, clip(name), "is an unknown parameter")
		}
	}
	return q, nil
}

// plain refuses every parameter.
func plain(r *http.Request) error {
	if r.URL.RawQuery != "" {
		return refuse(badRequest, "query", "must be empty")
	}
	return nil
}

// pageOf takes the items that pass from all, which is in ascending order of number.
func pageOf[E, T any](q query, all []E, number func(*E) uint64, pass func(*E) bool, show func(*E) T) page[T] {
	p := page[T]{Items: []T{}}
	var last uint64
	for i := range all {
		e := &all[i]
		if q.paged && number(e) <= q.after || !pass(e) {
			continue
		}
		if len(p.Items) == q.limit {
			p.Next = strconv.FormatUint(last, 10)
			break
		}
		last = number(e)
		p.Items = append(p.Items, show(e))
	}
	return p
}
