package receiver

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Book counts what one receiver got. All instants are measured from one origin that
// the caller chose. The zero Book is empty and ready; it is safe for concurrent use.
type Book struct {
	mu        sync.Mutex
	spans     []Span
	ids       []string                 // of the request at the same index in spans
	repeated  []bool                   // the id had been answered 2xx when the request came
	delivered map[string]time.Duration // id -> its first 2xx
	posted    map[string]time.Duration // id -> the post of the trigger
	tally     Tally
}

// Tally is the running count of a receiver.
type Tally struct {
	Attempts   int         // requests received
	InFlight   int         // not yet answered, the client still there
	Delivered  int         // distinct ids answered 2xx
	Duplicates int         // requests for an id that had been answered 2xx, when they came or when they got a 2xx too
	Nameless   int         // requests without an id: counted in Attempts only
	Answers    map[int]int // by status; 0: no answer (the client left, or the connection was closed)
}

// Report is the whole account of a receiver at an instant.
type Report struct {
	Tally
	MaxInFlight  int           // see MaxInFlight
	OverContract float64       // see OverContract
	Timed        int           // deliveries whose trigger's post time is known
	P50, P99     time.Duration // from the post of the trigger to its first 2xx; 0 when Timed is 0
}

// Begin counts a request for id that arrived now and returns its number, from 0,
// which the caller hands to End exactly once.
func (b *Book) Begin(id string, now time.Duration) (request int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, repeated := b.delivered[id]
	b.spans = append(b.spans, Span{now, open})
	b.ids = append(b.ids, id)
	b.repeated = append(b.repeated, repeated)
	b.tally.Attempts++
	b.tally.InFlight++
	if id == "" {
		b.tally.Nameless++
	}
	if repeated {
		b.tally.Duplicates++
	}
	return len(b.spans) - 1
}

// End counts how the request was answered: with status, or 0 for no answer. A second
// End of one request panics.
func (b *Book) End(request, status int, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spans[request].End != open {
		panic("receiver: Book.End must be called once for each Begin")
	}
	b.spans[request].End = now
	b.tally.InFlight--
	if b.tally.Answers == nil {
		b.tally.Answers = make(map[int]int)
	}
	b.tally.Answers[status]++
	if status >= 200 && status <= 299 {
		b.accept(request, now)
	}
}

// Accept counts a 2xx whose body is still being sent. End follows, with the same status.
func (b *Book) Accept(request int, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accept(request, now)
}

// accept counts the request's first 2xx; a second call for it changes nothing.
func (b *Book) accept(request int, now time.Duration) {
	id := b.ids[request]
	if id == "" || b.repeated[request] {
		return
	}
	b.repeated[request] = true
	if _, ok := b.delivered[id]; ok {
		b.tally.Duplicates++
		return
	}
	if b.delivered == nil {
		b.delivered = make(map[string]time.Duration)
	}
	b.delivered[id] = now
	b.tally.Delivered++
}

// Posted says when the trigger that is delivered as id was posted: the origin of its
// latency. It may come after the delivery; the first call for an id counts.
func (b *Book) Posted(id string, at time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.posted == nil {
		b.posted = make(map[string]time.Duration)
	}
	if _, ok := b.posted[id]; !ok {
		b.posted[id] = at
	}
}

// Tally returns the counts so far.
func (b *Book) Tally() Tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tallyLocked()
}

func (b *Book) tallyLocked() Tally {
	t := b.tally
	t.Answers = maps.Clone(t.Answers)
	return t
}

// Latencies returns, ascending, the time from post to first 2xx of every delivery
// whose post time is known.
func (b *Book) Latencies() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.latenciesLocked()
}

func (b *Book) latenciesLocked() []time.Duration {
	all := make([]time.Duration, 0, len(b.delivered))
	for id, at := range b.delivered {
		if posted, ok := b.posted[id]; ok {
			all = append(all, at-posted)
		}
	}
	slices.Sort(all)
	return all
}

// Report computes the account so far against what the sender promised.
func (b *Book) Report(c Contract) Report {
	b.mu.Lock()
	r := Report{Tally: b.tallyLocked()}
	latencies := b.latenciesLocked()
	spans := slices.Clone(b.spans)
	b.mu.Unlock()

	arrivals := make([]time.Duration, len(spans))
	for i, s := range spans {
		arrivals[i] = s.Start
	}
	r.MaxInFlight = MaxInFlight(spans, c.Cap)
	r.OverContract = OverContract(arrivals, c)
	if r.Timed = len(latencies); r.Timed > 0 {
		r.P50, r.P99 = Quantile(latencies, 0.50), Quantile(latencies, 0.99)
	}
	return r
}
