package fanout

import (
	"fmt"

	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// What a tenant can add to the registry and to the memory of all is bounded: tenants are hostile to each other.

const (
	groupMost = 64 // subscriptions of one lane
	// lifeMost times the subscriptions that a tier allows at once is what a tenant may make in its life, since a
	// removed one leaves a record; and how many hosts it may name, since each keeps its state until a restart.
	lifeMost = 10
)

// Beside is what a tenant has beside a subscription that is checked.
type Beside struct {
	Lane  int // others that share its lane
	Live  int // other subscriptions
	Ever  int // those, and those that were removed
	Hosts int // that the tenant was the first to name, since the start
}

// checkBeside refuses one subscription too many of a lane or of a tenant, and one host too many; most is what the
// tenant's tier allows. Errors are *journal.FieldError.
func (f *Fanout) checkBeside(s *journal.Subscription, most int, b Beside) error {
	life := most * lifeMost
	_, known := f.index.hosts[delivery.HostKey(s.URL)]
	switch {
	case !known && b.Hosts >= life:
		return &journal.FieldError{Field: "url", Rule: fmt.Sprintf("names a new host; the tenant has named %d, %d times the subscriptions of its tier", b.Hosts, lifeMost)}
	case s.ID != "":
	case b.Lane >= groupMost:
		return &journal.FieldError{Field: "lane", Rule: fmt.Sprintf("is shared by %d subscriptions, and no more may share one", groupMost)}
	case b.Live >= most:
		return &journal.FieldError{Field: "tenant", Rule: fmt.Sprintf("may have %d subscriptions by its tier, and has them", most)}
	case b.Ever >= life:
		return &journal.FieldError{Field: "tenant", Rule: fmt.Sprintf("may make %d subscriptions in its life, %d times those of its tier, and has made them", life, lifeMost)}
	}
	return nil
}

// live counts the tenant's subscriptions.
func (tn *tenant) live() (n int) {
	for _, l := range tn.lanes {
		if !l.removed {
			n++
		}
	}
	return n
}
