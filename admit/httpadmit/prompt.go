package httpadmit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"sync"
	"time"
)

// errLate is a net.Error that says Timeout.
var errLate = fmt.Errorf("httpadmit: the service did not begin to answer in time: %w", os.ErrDeadlineExceeded)

// prompt gives up calls whose service neither takes of the request nor begins to
// answer for Settings.Timeout. 1xx are no answer, 101 is one; what follows the
// answer's header may take any time. Waiting for the client to send more does not
// count: that is bounded by Settings.Stall.
type prompt struct {
	base http.RoundTripper // nil: http.DefaultTransport
	door *Door
}

func (p prompt) RoundTrip(r *http.Request) (*http.Response, error) {
	most := cmp.Or(p.door.settings.Load().Timeout, math.MaxInt64)
	ctx, cancel := context.WithCancel(r.Context()) // which ends with the request: the answer's body goes on under it
	w := &watch{most: most}
	w.timer = time.AfterFunc(most, func() { w.fire(cancel) })
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = watchedBody{r.Body, w}
	}
	resp, err := cmp.Or(p.base, http.DefaultTransport).RoundTrip(r)
	late, broken := w.end()
	switch {
	case late && err == nil:
		resp.Body.Close()
		return nil, errLate
	case late:
		return nil, errLate
	case broken != nil && errors.Is(err, context.Canceled): // by the server, when the client's connection broke
		err = broken
	}
	if err != nil {
		cancel()
	}
	return resp, err
}

// watch is the time that a service has, and what became of the request's body meanwhile.
type watch struct {
	most  time.Duration
	timer *time.Timer

	mu     sync.Mutex // a transport may still read the body when it has answered
	ended  bool
	late   bool
	broken error // a *bodyError
}

func (w *watch) fire(cancel func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.late = true
		cancel()
	}
}

// end ends the time, and reports whether it was over before.
func (w *watch) end() (late bool, broken error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
	return w.late, w.broken
}

// watchedBody is read as the service takes it; while it waits for the client, the service's time stands still.
type watchedBody struct {
	io.ReadCloser
	watch *watch
}

func (b watchedBody) Read(p []byte) (int, error) {
	w := b.watch
	w.timer.Stop()
	n, err := b.ReadCloser.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.timer.Reset(w.most)
	}
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) { //nolint:errorlint // a Reader's end is this itself
		err = &bodyError{err}
		w.broken = err
	}
	return n, err
}

// bodyError is the error of a request's body, which is the client's: it stalled, went, or sent what is no body.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }
