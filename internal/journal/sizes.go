package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// TenantSize is what a tenant had parked and dead when it was kept.
type TenantSize struct {
	Tenant uint32 // its number
	Count  uint64
	Bytes  uint64 // of payload
}

// Neither records nor checkpoints know how large a payload is, and the release before refuses a checkpoint that says
// more. So sizes have a bucket of their own, made with the first, which that release leaves alone. They are an aid: the
// last that were kept are near enough, and a start does without.
const (
	sizesBucket = "SIZES"
	sizesKey    = "tenants"
	sizesMost   = 15_000 // tenants: a record stays below maxRecord
)

// PutSizes keeps sizes for the next start, of the first tenants where there are too many. One call at a time.
func (j *Journal) PutSizes(ctx context.Context, all []TenantSize) error {
	rows := make([][3]uint64, min(len(all), sizesMost))
	for i := range rows {
		rows[i] = [3]uint64{uint64(all[i].Tenant), all[i].Count, all[i].Bytes}
	}
	value, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, registryPatience)
	defer cancel()
	return j.kept.put(ctx, sizesKey, value)
}

// Sizes returns what was kept last, nothing where nothing was. Not while PutSizes runs.
func (j *Journal) Sizes(ctx context.Context) ([]TenantSize, error) {
	var entry jetstream.KeyValueEntry
	err := j.kept.find(ctx)
	if err == nil && j.kept.kv != nil {
		err = j.link.asked(ctx, func(ctx context.Context) (err error) {
			entry, err = j.kept.kv.Get(ctx, sizesKey)
			return err
		})
	}
	if errors.Is(err, jetstream.ErrKeyNotFound) || err == nil && entry == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: sizes: %w", err)
	}
	var rows [][3]uint64
	if err := json.Unmarshal(entry.Value(), &rows); err != nil {
		return nil, fmt.Errorf("%w: sizes: %w", ErrDamaged, err)
	}
	all := make([]TenantSize, len(rows))
	for i, r := range rows {
		all[i] = TenantSize{Tenant: uint32(r[0]), Count: r[1], Bytes: r[2]}
	}
	return all, nil
}
