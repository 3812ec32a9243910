package torture

import (
	"cmp"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var origin = time.Now()

// now is the tests' one clock: monotonic.
func now() time.Duration { return time.Since(origin) }

// request is one attempt as an endpoint saw it.
type request struct {
	id       string // webhook-id
	posted   string // the trigger, as its payload names it
	attempt  int    // X-Attempt
	at       time.Duration
	answered time.Duration // the last byte was handed to the system; 0: the client was gone before
	status   int           // 0: not answered
}

func (r *request) accepted() bool { return r.status/100 == 2 }

// reply says how the n-th request (from 0) is answered.
type reply func(n int, id string) (status int, delay time.Duration)

// inFlight counts the requests open at all endpoints, arrivals all that ever came.
var inFlight, arrivals atomic.Int64

// endpoint is a receiver of one subscription, with its book.
type endpoint struct {
	name     string
	url      string
	answer   atomic.Pointer[reply]
	arrived  chan *request // told of arrivals, if not nil
	finished chan *request // told of answers, if not nil

	mu   sync.Mutex
	seen []*request
}

// listen starts an endpoint at addr ("": any free one).
func listen(t *testing.T, name, addr string, r reply) *endpoint {
	t.Helper()
	l, err := net.Listen("tcp", cmp.Or(addr, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{name: name}
	e.become(r)
	srv := httptest.NewUnstartedServer(e)
	srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	e.url = srv.URL + "/" + name
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return e
}

func (e *endpoint) become(r reply) { e.answer.Store(&r) }

// ServeHTTP books the request, waits as long as the reply says, and answers, unless the client is gone.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	attempt, _ := strconv.Atoi(req.Header.Get("X-Attempt"))
	r := &request{id: req.Header.Get("webhook-id"), attempt: attempt, at: now()}
	body, _ := io.ReadAll(req.Body)
	r.posted = postedOf(body)
	arrivals.Add(1)
	inFlight.Add(1)
	defer inFlight.Add(-1)
	n := e.book(r)
	notify(e.arrived, r)
	status, delay := (*e.answer.Load())(n, r.id)
	if !wait(req, delay) {
		return
	}
	w.WriteHeader(status)
	if http.NewResponseController(w).Flush() != nil {
		return
	}
	e.mu.Lock()
	r.status, r.answered = status, now()
	e.mu.Unlock()
	notify(e.finished, r)
}

func (e *endpoint) book(r *request) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, r)
	return len(e.seen) - 1
}

func notify(c chan *request, r *request) {
	if c != nil {
		select {
		case c <- r:
		default:
		}
	}
}

// wait returns after d, or reports false when the client is gone before.
func wait(req *http.Request, d time.Duration) bool {
	if d == 0 {
		return req.Context().Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-req.Context().Done():
		return false
	}
}

// requests returns a copy of the book in order of arrival.
func (e *endpoint) requests() []request {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]request, len(e.seen))
	for i, r := range e.seen {
		out[i] = *r
	}
	slices.SortStableFunc(out, func(a, b request) int { return cmp.Compare(a.at, b.at) })
	return out
}

// awaitQuiet waits until the last answer is so old that the next kill does not excuse its repetition.
func (e *endpoint) awaitQuiet() {
	poll(time.Minute, func() bool {
		rs := e.requests()
		return len(rs) == 0 || now()-max(rs[len(rs)-1].answered, rs[len(rs)-1].at) > cutWindow
	})
}

// byID returns the requests of each delivery, in order of arrival.
func (e *endpoint) byID() map[string][]request {
	out := make(map[string][]request)
	for _, r := range e.requests() {
		out[r.id] = append(out[r.id], r)
	}
	return out
}

// Replies.

func always(status int, delay time.Duration) reply {
	return func(int, string) (int, time.Duration) { return status, delay }
}

// between answers 200 after least to most, by the id.
func between(least, most time.Duration) reply {
	return func(n int, id string) (int, time.Duration) {
		return 200, least + time.Duration(digest(id))%(most-least)
	}
}

// failingSometimes answers every n-th request with 500, and refuses some messages for good.
func failingSometimes(every int) reply {
	return func(n int, id string) (int, time.Duration) {
		switch {
		case poison(id):
			return 422, 0
		case n%every == every-1:
			return 500, 20 * time.Millisecond
		}
		return 200, 5 * time.Millisecond
	}
}

// failingSeldom answers every n-th request with 500, the others at once.
func failingSeldom(every int) reply {
	return func(n int, _ string) (int, time.Duration) {
		if n%every == every-1 {
			return 500, 0
		}
		return 200, 0
	}
}

// poison says which messages failingSometimes refuses.
func poison(id string) bool { return digest(id)%40 == 0 }

func digest(s string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(s))
	return h.Sum32()
}
