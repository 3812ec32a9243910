package fanout

import (
	"cmp"
	"context"
	"slices"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// restoredBytes is what a delivery counts against the quota after a restart, when nobody knows its tenant's mean.
const restoredBytes = 1024

// keepSizes stores how large what the tenants have parked and dead is: the next start knows only how many they are.
func (f *Fanout) keepSizes(ctx context.Context) {
	f.mu.Lock()
	var all []journal.TenantSize
	for _, tn := range f.index.tenants {
		if tn.count > 0 {
			all = append(all, journal.TenantSize{Tenant: uint32(tn.id), Count: uint64(tn.count), Bytes: uint64(tn.bytes + 0.5)})
		}
	}
	f.mu.Unlock()
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b journal.TenantSize) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Tenant, b.Tenant))
	})
	if err := f.journal.PutSizes(ctx, all); err != nil && ctx.Err() == nil {
		f.log.Warn("sizes of backlogs were not stored: after a start now they are those stored before, or estimates", "error", err)
	}
}

// restoreSizes counts what was restored of a tenant by the mean that was kept. It is exact after a clean stop, and
// after a crash but for what has changed since the last checkpoint.
func (f *Fanout) restoreSizes(ctx context.Context) {
	kept, err := f.journal.Sizes(ctx)
	if err != nil {
		f.log.Warn("sizes of backlogs could not be read: they are estimated", "error", err)
	}
	mean := make(map[uint32]float64, len(kept))
	for _, s := range kept {
		mean[s.Tenant] = float64(s.Bytes) / float64(max(s.Count, 1))
	}
	for _, tn := range f.index.tenants {
		if m, known := mean[uint32(tn.id)]; known {
			tn.bytes = m * float64(tn.count)
		}
	}
}
