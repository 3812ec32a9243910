package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// lazyBucket is a KV bucket that is made with its first record, so that a directory without any stays one that an
// older release knows. Its methods are for the holder of the turn.
type lazyBucket struct {
	link *link
	name string
	turn chan struct{}      // one token: its holder writes
	kv   jetstream.KeyValue // nil: no bucket yet
}

func newLazy(l *link, name string) *lazyBucket {
	return &lazyBucket{link: l, name: name, turn: make(chan struct{}, 1)}
}

// openLazy finds a bucket, and hands what is in it to take.
func openLazy(ctx context.Context, l *link, name string, take func(jetstream.KeyValueEntry) error) (*lazyBucket, error) {
	b := newLazy(l, name)
	err := b.find(ctx)
	if err == nil && b.kv != nil {
		err = entries(ctx, b.kv, 1, take, jetstream.IgnoreDeletes())
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %s: %w", name, err)
	}
	return b, nil
}

// find opens the bucket if there is one.
func (b *lazyBucket) find(ctx context.Context) error {
	err := b.link.asked(ctx, func(ctx context.Context) (err error) {
		b.kv, err = b.link.found(ctx, b.name)
		return err
	})
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	return err
}

// enter waits for the turn, and returns a context that the caller's end does not end: a write that has begun goes on.
func (b *lazyBucket) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), registryPatience)
	return ctx, func() { cancel(); <-b.turn }, nil
}

// put stores a record, and returns when it is durable. Error: ErrUnavailable, in doubt.
func (b *lazyBucket) put(ctx context.Context, key string, value []byte) error {
	if b.kv == nil {
		kv, err := b.link.bucket(ctx, jetstream.KeyValueConfig{Bucket: b.name, Storage: jetstream.FileStorage, History: 1, MaxValueSize: maxRecord})
		if err == nil {
			err = b.link.names.syncAll()
		}
		if err != nil {
			return inDoubt(err)
		}
		b.kv = kv
	}
	if _, err := b.kv.Put(ctx, key, value); err != nil {
		return inDoubt(err)
	}
	if err := b.link.names.sync(); err != nil {
		return inDoubt(err)
	}
	return nil
}

// remove removes a record that was put. Error: ErrUnavailable, in doubt.
func (b *lazyBucket) remove(ctx context.Context, key string) error {
	if err := b.kv.Purge(ctx, key); err != nil {
		return inDoubt(err)
	}
	if err := b.link.names.sync(); err != nil {
		return inDoubt(err)
	}
	return nil
}
