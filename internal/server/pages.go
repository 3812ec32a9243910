package server

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/journal"
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
	words  map[string][]string // of kind, reason and state: what passes; absent is all
	since  time.Time           // zero: no bound
	until  time.Time           // excluded; zero: no bound
}

// has reports whether a list shows what has the word, in the parameter of that name.
func (q *query) has(parameter, word string) bool {
	words, asked := q.words[parameter]
	return !asked || slices.Contains(words, word)
}

func (q *query) hasReason(word string) bool { return q.has("reason", word) }

// during reports whether an instant is in the range asked for.
func (q *query) during(at time.Time) bool {
	return (q.since.IsZero() || !at.Before(q.since)) && (q.until.IsZero() || at.Before(q.until))
}

// of reports whether a list that c asked for shows what belongs to a tenant.
func (q *query) of(c *caller, tenantID string) bool {
	return c.sees(tenantID) && (q.tenant == "" || q.tenant == tenantID)
}

// readQuery reads the parameters of a list, which the row has let in.
func readQuery(r *http.Request) (query, error) {
	q := query{limit: defaultLimit, words: map[string][]string{}}
	var err error
	for name, v := range r.URL.Query() {
		switch name {
		case "after":
			q.paged = true
			if q.after, err = strconv.ParseUint(v[0], 10, 63); err != nil {
				return q, refuse(badRequest, "after", "must be the next of an earlier page")
			}
		case "limit":
			if q.limit, err = strconv.Atoi(v[0]); err != nil || q.limit < 1 || q.limit > maxLimit {
				return q, refuse(badRequest, "limit", "must be from 1 to 1000")
			}
		case "tenant":
			if q.tenant = v[0]; !validTenantID(q.tenant) {
				return q, refuse(badRequest, "tenant", "must be "+tenantIDRule)
			}
		case "since":
			q.since, err = time.Parse(time.RFC3339Nano, v[0])
		case "until":
			q.until, err = time.Parse(time.RFC3339Nano, v[0])
		case "kind", "reason", "state":
			q.words[name], err = readWords(name, v[0])
		}
		if err != nil {
			return q, refuse(badRequest, name, cmp.Or(wordRules[name], "must be an instant of RFC 3339 such as 2026-12-01T08:00:00Z"))
		}
	}
	if !q.since.IsZero() && !q.until.IsZero() && q.until.Before(q.since) {
		return q, refuse(badRequest, "until", "must not be before since")
	}
	return q, nil
}

// readWords reads words separated by commas, each one of those that the parameter knows: one that it does
// not know would hide everything.
func readWords(name, v string) ([]string, error) {
	words := strings.Split(v, ",")
	for _, w := range words {
		if !slices.Contains(wordsOf[name], w) {
			return nil, errors.New("unknown word")
		}
	}
	return words, nil
}

// wordsOf are the words of a parameter, and wordRules what is said of another.
var wordsOf, wordRules = func() (words map[string][]string, rules map[string]string) {
	words = map[string][]string{"state": {stateActive, statePaused, stateDisabled}}
	for k := journal.Delivered; k.String() != ""; k++ {
		words["kind"] = append(words["kind"], k.String())
	}
	slices.Sort(words["kind"])
	for r := engine.None + 1; r.String() != "unknown"; r++ {
		words["reason"] = append(words["reason"], r.String())
	}
	rules = map[string]string{}
	for name, list := range words {
		rules[name] = "must be of " + strings.Join(list, ", ") + "; several are separated by commas"
	}
	return words, rules
}()

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
