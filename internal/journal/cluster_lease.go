package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// On a cluster nothing but this keeps two processes apart: a record in a bucket that its holder writes anew
// every few seconds, over the revision that it wrote last. A contender waits until the revision has not moved
// for seven of these, as it counts itself, and writes over it; the holder does nothing more when it was not
// able to write for four of them. So of two that see each other neither acts while the other does.
const (
	leaseBucket  = "LEASE"
	leaseKey     = "owner"
	leaseSilence = 4
	leaseAge     = 7
)

// ErrSuperseded says that another process has taken over the cluster's streams: this one must end.
var ErrSuperseded = errors.New("journal: another process has taken over")

// lease is held by this process.
type lease struct {
	kv       jetstream.KeyValue
	mine     leaseRecord
	every    time.Duration
	start    time.Time
	revision uint64        // the keeper's
	renewed  atomic.Int64  // when the last write that succeeded was begun, since start
	lost     chan struct{} // closed when another process holds it

	stalled atomic.Pointer[chan struct{}] // tests only: no renewal until it is closed
}

type leaseRecord struct {
	Writer   uint64    `json:"writer,string"`
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Since    time.Time `json:"since"`
	Released bool      `json:"released,omitempty"`
}

// acquire takes the lease, at once when nobody holds it, or when its holder has been silent for long enough.
// A holder that lives is ErrLocked.
func (l *link) acquire(ctx context.Context, writer uint64, every time.Duration) (*lease, error) {
	kv, err := l.bucket(ctx, jetstream.KeyValueConfig{Bucket: leaseBucket, Storage: jetstream.FileStorage, History: 1})
	if err != nil {
		return nil, fmt.Errorf("journal: lease: %w", err)
	}
	host, _ := os.Hostname()
	h := &lease{kv: kv, every: every, start: time.Now(), lost: make(chan struct{}),
		mine: leaseRecord{Writer: writer, Host: cmp.Or(host, "?"), PID: os.Getpid(), Since: time.Now().UTC().Truncate(time.Second)}}
	var seen uint64
	var since time.Time
	for {
		now, revision, err := h.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			l.log.Warn("journal: the lease cannot be read", "error", err)
			since = time.Time{} // what was not watched does not count
		case revision != 0 && !now.Released && seen != 0 && seen != revision:
			return nil, fmt.Errorf("%w: the NATS cluster's streams are held by process %d on %s, since %s", ErrLocked, now.PID, now.Host, now.Since.Format(time.RFC3339))
		case revision != 0 && !now.Released && since.IsZero():
			seen, since = revision, time.Now()
			l.log.Info("journal: waits for the lease of a process that may be gone", "host", now.Host, "pid", now.PID, "longest", leaseAge*every)
		case revision == 0 || now.Released || time.Since(since) >= leaseAge*every:
			if h.write(ctx, revision, h.mine) == nil {
				return h, nil
			}
		}
		pause(ctx, every/3)
	}
}

// read returns what the bucket has; revision 0 is nothing.
func (h *lease) read(ctx context.Context) (r leaseRecord, revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.every)
	defer cancel()
	e, err := h.kv.Get(ctx, leaseKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return r, 0, nil
	}
	if err != nil {
		return r, 0, err
	}
	return r, e.Revision(), json.Unmarshal(e.Value(), &r)
}

// write replaces what has that revision.
func (h *lease) write(ctx context.Context, revision uint64, r leaseRecord) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	begun := time.Since(h.start)
	ctx, cancel := context.WithTimeout(ctx, h.every)
	defer cancel()
	next, err := h.kv.Update(ctx, leaseKey, value, revision)
	if err != nil {
		return err
	}
	h.revision = next
	h.renewed.Store(int64(begun))
	return nil
}

// keep renews the lease until ctx ends, or it is lost.
func (h *lease) keep(ctx context.Context) {
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if c := h.stalled.Load(); c != nil {
			<-*c
		}
		if h.write(ctx, h.revision, h.mine) == nil {
			continue
		}
		now, revision, err := h.read(ctx)
		switch {
		case err != nil || revision < h.revision: // a replica that lags, or nobody answers
		case now.Writer == h.mine.Writer:
			h.revision = revision // a write whose answer was lost
		default:
			close(h.lost)
			return
		}
	}
}

// release lets the next process begin at once. The keeper has ended.
func (h *lease) release() {
	r := h.mine
	r.Released = true
	_ = h.write(context.Background(), h.revision, r) // else it has to wait
}

// held says why nothing may be done now: the lease is lost, or perhaps lost. nil while it is held, and for a
// journal that needs none.
func (h *lease) held() error {
	if h == nil {
		return nil
	}
	select {
	case <-h.lost:
		return ErrSuperseded
	default:
	}
	if silent := time.Since(h.start) - time.Duration(h.renewed.Load()); silent > leaseSilence*h.every {
		return fmt.Errorf("%w: the lease could not be renewed for %v", ErrUnavailable, silent.Round(time.Second))
	}
	return nil
}

// Superseded is closed when another process has taken over, on a cluster: nothing is accepted or sent any more,
// and this process should end.
func (j *Journal) Superseded() <-chan struct{} {
	if j.lease == nil {
		return nil
	}
	return j.lease.lost
}
