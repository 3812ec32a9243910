package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fairlane-dev/fairlane/engine"
)

// Ledger is what a data directory tells of its deliveries while no service runs on it. Reading it begins
// no epoch, writes no record and decrypts nothing: the next start finds what the last stop left. Not safe
// for concurrent use.
type Ledger struct {
	link   *link
	epochs *epochs
	unlock func()
}

// Owner is whose a lane is.
type Owner struct{ Tenant, Subscription string }

// OpenLedger locks the directory. Errors: ErrNotFound: there is no journal; ErrLocked: a service runs on it;
// ErrDamaged.
func OpenLedger(ctx context.Context, dir string) (*Ledger, error) {
	if _, err := os.Stat(filepath.Join(dir, "streams")); err != nil {
		return nil, fmt.Errorf("%w: %s holds no journal", ErrNotFound, dir)
	}
	o, err := Options{Dir: dir}.withDefaults()
	if err != nil {
		return nil, err
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	l := &Ledger{unlock: unlock, epochs: &epochs{}}
	if l.link, err = openLink(o); err != nil {
		unlock()
		return nil, err
	}
	if err := l.load(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// load learns who might write when.
func (l *Ledger) load(ctx context.Context) error {
	if err := l.epochs.load(ctx, l.link, 0); err != nil {
		return err
	}
	newest, err := newestCheckpoint(ctx, l.link, l.epochs)
	if newest != nil {
		l.epochs.assume(newest)
	}
	return err
}

// Close stops the embedded server and gives the directory free.
func (l *Ledger) Close() {
	l.link.close()
	l.unlock()
}

// Owners returns whose every lane is, those of deleted subscriptions included.
func (l *Ledger) Owners(ctx context.Context) (map[engine.LaneID]Owner, error) {
	kv, err := l.link.js.KeyValue(ctx, registryBucket)
	if err != nil {
		return nil, fmt.Errorf("journal: registry: %w", err)
	}
	owners := map[engine.LaneID]Owner{}
	err = entries(ctx, kv, 1, func(e jetstream.KeyValueEntry) error {
		if !strings.HasPrefix(e.Key(), kindSubscription+".") {
			return nil
		}
		var s subscriptionRecord
		if err := json.Unmarshal(e.Value(), &s); err != nil {
			return fmt.Errorf("%w: record %s: %w", ErrDamaged, e.Key(), err)
		}
		owners[engine.LaneID(s.Lane)] = Owner{s.Tenant, s.ID}
		return nil
	}, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("journal: registry: %w", err)
	}
	return owners, nil
}

// Records visits every outcome record that counts, the oldest first, each of one delivery and under the
// position of its trigger; 0 where that is not known any more. LaneCancelled stays one record.
func (l *Ledger) Records(ctx context.Context, visit func(*Record)) error {
	s, err := l.link.span(ctx, outcomesStream)
	if err != nil {
		return err
	}
	origin := map[Position]Position{}
	return l.link.each(ctx, outcomesStream, max(s.first, 1), s.last, func(m message) error {
		kind, h, err := decodeHeader(m.data)
		if err != nil || kind != kindRecords {
			return err
		}
		if again, err := repeatedOutcome(ctx, l.link, m.seq, h); err != nil || again {
			return err
		}
		_, recs, err := decodeRecords(m.data)
		for i := range recs {
			if l.epochs.valid(h, m.seq, recs[i].Partition) {
				single(&recs[i], origin, visit)
			}
		}
		return err
	})
}

// single visits a record once for each delivery that it is about. origin is the position that a delivery in
// HELD had before.
func single(r *Record, origin map[Position]Position, visit func(*Record)) {
	if r.Kind == Held {
		for i, p := range r.Positions {
			if p.Held() {
				p = origin[p]
			}
			if p != 0 {
				origin[HeldPosition(r.Ref, i)] = p
			}
		}
		return
	}
	n := uint32(1)
	if r.Kind != LaneCancelled && r.Position.Held() {
		n = min(max(r.N, 1), packMaxEntries)
	}
	for i := range n {
		one := *r
		if r.Position.Held() {
			if one.Position = origin[r.Position+Position(i)]; one.Position == 0 && n == 1 {
				one.Position = Position(r.Ref)
			}
		}
		visit(&one)
	}
}

// Triggers visits every trigger that is still in the log, with the bytes of its payload.
func (l *Ledger) Triggers(ctx context.Context, visit func(at Position, accepted time.Time, size int)) error {
	s, err := l.link.span(ctx, triggersStream)
	if err != nil {
		return err
	}
	return l.link.each(ctx, triggersStream, max(s.first, 1), s.last, func(m message) error {
		p, err := decodePack(m.seq, m.at, m.data)
		if err != nil {
			return err
		}
		for i := range p.Entries {
			if t := p.Entries[i].Trigger; t != nil {
				visit(p.Entries[i].Position, t.Accepted, len(t.Payload))
			}
		}
		return nil
	})
}
