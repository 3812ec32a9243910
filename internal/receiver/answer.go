package receiver

import (
	"net/http"
	"strconv"
	"time"
)

// answer carries out one Reply.
type answer struct {
	receiver *Receiver
	w        http.ResponseWriter
	req      *http.Request
	reply    Reply
	entry    int // in the book
}

// carryOut answers and returns when the request is over. What is counted is counted
// just before the answer is handed over: at the last instant at which the client
// cannot know it yet, so that its next request never seems to overlap this one.
func (a *answer) carryOut() {
	switch {
	case !a.wait(a.reply.Delay):
		a.end(0)
	case a.reply.Close:
		a.end(0)
		panic(http.ErrAbortHandler) // closes the connection without an answer
	case a.reply.Status == 0:
		<-a.left()
		a.end(0)
	case a.reply.Trickle > 0:
		a.trickle()
	default:
		a.end(a.reply.Status)
		a.head()
	}
}

func (a *answer) head() {
	if wait := a.reply.RetryAfter; wait > 0 {
		seconds := (wait + time.Second - 1) / time.Second
		a.w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	a.w.WriteHeader(a.reply.Status)
}

// trickle sends the headers, then one byte each interval until the client leaves.
func (a *answer) trickle() {
	if a.reply.Accepts() {
		a.accept()
	}
	a.head()
	out := http.NewResponseController(a.w)
	for out.Flush() == nil && a.wait(a.reply.Trickle) {
		if _, err := a.w.Write([]byte{'.'}); err != nil {
			break
		}
	}
	a.end(a.reply.Status)
}

// wait waits for d and reports whether the client is still there.
func (a *answer) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.left():
		return false
	}
}

// left is closed when the client has gone, or the receiver closes.
func (a *answer) left() <-chan struct{} { return a.req.Context().Done() }

func (a *answer) accept() {
	if r := a.receiver; !r.config.NoBook {
		r.book.Accept(a.entry, r.Elapsed())
	}
}

func (a *answer) end(status int) {
	if r := a.receiver; !r.config.NoBook {
		r.book.End(a.entry, status, r.Elapsed())
	}
}
