package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// asked does again, until it is answered, a request that may be made again: one that reaches a cluster while it
// elects gets no answer, then or later.
func (l *link) asked(ctx context.Context, ask func(context.Context) error) error {
	return l.insist(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, l.patience)
		defer cancel()
		return ask(ctx)
	})
}

// insist does what may be done again until the server does not fall silent over it. An election that goes on for
// longer than that is the caller's trouble: ErrUnavailable.
func (l *link) insist(ctx context.Context, do func(context.Context) error) error {
	until := time.Now().Add(askedFor * l.patience)
	for {
		err := do(ctx)
		if !silence(err) || ctx.Err() != nil {
			return err
		}
		if pause(ctx, askAgain); time.Now().After(until) {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

const (
	askedFor = 15 // times the patience with one answer
	askAgain = 50 * time.Millisecond
)

// silence reports whether err is the lack of an answer, or says that nobody can give one now.
func silence(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.As(err, &api) && api.Code == http.StatusServiceUnavailable
}

// entries hands all entries of a bucket to take, on so many goroutines at once. A server that falls silent before
// the last is ErrUnavailable.
func entries(ctx context.Context, kv jetstream.KeyValue, readers int, take func(jetstream.KeyValueEntry) error, opts ...jetstream.WatchOpt) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	quiet := fmt.Errorf("%w: the bucket %s falls silent", ErrUnavailable, kv.Bucket())
	silent := time.AfterFunc(entrySilence, func() { end(quiet) })
	defer silent.Stop()
	w, err := kv.WatchAll(ctx, opts...)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer func() { _ = w.Stop() }() // what is read is read
	errs := make([]error, readers)
	var reading sync.WaitGroup
	for i := range errs {
		reading.Go(func() {
			errs[i] = eachEntry(ctx, w.Updates(), func(e jetstream.KeyValueEntry) error {
				silent.Reset(entrySilence)
				return take(e)
			})
			if ctx.Err() != nil && errors.Is(errs[i], errReaderEnded) {
				errs[i] = nil // another's end is why
			}
			end(cmp.Or(errs[i], errLoaded))
		})
	}
	reading.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errLoaded) {
		return err
	}
	return errors.Join(errs...)
}

var errReaderEnded = fmt.Errorf("%w: the bucket's reader has ended", ErrUnavailable)

// eachEntry returns nil at the entry that says that there are no more, and when ctx ends: whoever ended it knows why.
func eachEntry(ctx context.Context, from <-chan jetstream.KeyValueEntry, take func(jetstream.KeyValueEntry) error) error {
	for {
		select {
		case e, ok := <-from:
			switch {
			case e != nil:
			case ok: // there are no more
				return nil
			default: // it ends with ctx, or by itself
				return errReaderEnded
			}
			if err := take(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

const entrySilence = 10 * time.Second

// errLoaded ends the readers of a bucket: that was all.
var errLoaded = errors.New("loaded")
