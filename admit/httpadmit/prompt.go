package httpadmit

import (
	"cmp"
	"context"
	"fmt"
	"io"
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
	base, most := cmp.Or(p.base, http.DefaultTransport), p.door.settings.Load().Timeout
	if most == 0 {
		return base.RoundTrip(r)
	}
	ctx, cancel := context.WithCancel(r.Context()) // which ends with the request: the answer's body goes on under it
	w := &watch{most: most}
	w.timer = time.AfterFunc(most, func() { w.fire(cancel) })
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = watchedBody{r.Body, w}
	}
	resp, err := base.RoundTrip(r)
	late := w.end()
	if late && err == nil {
		resp.Body.Close()
	}
	if late {
		return nil, errLate
	}
	if err != nil {
		cancel()
	}
	return resp, err
}

// watch is the time that a service has.
type watch struct {
	most  time.Duration
	timer *time.Timer

	mu    sync.Mutex // a transport may still read the body when it has answered
	ended bool
	late  bool
}

func (w *watch) fire(cancel func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.late = true
		cancel()
	}
}

// pause stops the time, proceed gives it anew, end ends it and reports whether it was over.
func (w *watch) pause() { w.timer.Stop() }

func (w *watch) proceed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.timer.Reset(w.most)
	}
}

func (w *watch) end() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
	return w.late
}

// watchedBody is read as the service takes it.
type watchedBody struct {
	io.ReadCloser
	watch *watch
}

func (b watchedBody) Read(p []byte) (int, error) {
	b.watch.pause()
	defer b.watch.proceed()
	return b.ReadCloser.Read(p)
}
