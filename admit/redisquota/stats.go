package redisquota

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
)

type counts struct{ asked, away, late, kept, returned, doubt atomic.Int64 }

// Stats are counts since the store was opened.
type Stats struct {
	Asked    int64 // decisions that the store was to make
	Away     int64 // of them, made without it
	Late     int64 // calls that missed the deadline
	Kept     int64 // recorded too late for its caller, whose request was let through all the same
	Returned int64 // recorded too late for a request that was refused, and given back
	Doubt    int64 // calls of which nobody can know whether they were recorded
}

// Stats returns the counts.
func (s *Store) Stats() Stats {
	c := &s.counts
	return Stats{c.asked.Load(), c.away.Load(), c.late.Load(), c.kept.Load(), c.returned.Load(), c.doubt.Load()}
}

// Check asks the server for settings with which quotas would be lost, and returns a line for
// each. An error says that it cannot be asked; a managed server may refuse to tell.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	client, err := s.connect()
	if err != nil {
		return nil, fmt.Errorf("redisquota: %w", err)
	}
	ask := func(section, field string) string {
		text, e := client.Do(ctx, client.B().Info().Section(section).Build()).ToString()
		if e != nil {
			err = fmt.Errorf("redisquota: %w", e)
		}
		_, value, _ := strings.Cut(text, "\r\n"+field+":")
		value, _, _ = strings.Cut(value, "\r\n")
		return value
	}
	if v := ask("memory", "maxmemory_policy"); v != "noeviction" && v != "" {
		warnings = append(warnings, "maxmemory-policy is "+v+": evicted counters start afresh; set noeviction")
	}
	if v := ask("persistence", "aof_enabled"); v == "0" {
		warnings = append(warnings, "appendonly is off: a restart forgets what was used; set appendonly yes")
	}
	if v := ask("replication", "role"); v == "slave" {
		warnings = append(warnings, "the server is a replica: quotas must be decided on the primary")
	}
	return warnings, err
}
