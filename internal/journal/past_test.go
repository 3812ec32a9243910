package journal

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// What lives again keeps its past, over a crash at any record and a checkpoint before any: numbers never
// decrease, each replay's count adds up, and what is settled is forgotten.
//
// Field case 44.
func TestAPastIsKeptOverACrashAnywhere(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	held := HeldPosition(9, 0)
	steps := []struct {
		rec  Record
		past []PastOf
		jobs []JobCount
	}{
		{Record{Kind: Dead, Position: 300, At: at(10), Attempt: 4, Reason: engine.Exhausted}, nil, nil},
		{Record{Kind: Dead, Position: 301, At: at(11), Reason: engine.OverQuota}, nil, nil},
		{Record{Kind: Revived, Positions: []Position{300, 301}, At: at(20), Attempt: 1, Ref: 7}, []PastOf{
			{DeliveryKey{0, 300}, Past{Job: 7, Deaths: 1, Replays: 1, Attempts: 4, First: engine.Exhausted, FirstAt: 10, Revived: 20}},
			{DeliveryKey{0, 301}, Past{Job: 7, Deaths: 1, Replays: 1, First: engine.OverQuota, FirstAt: 11, Revived: 20}},
		}, []JobCount{{Number: 7, Taken: 2}}},
		{Record{Kind: Claimed, Positions: []Position{300, 301}, At: at(21), Attempt: 2}, nil, nil},
		{Record{Kind: Delivered, Position: 301, At: at(22), Attempt: 1}, []PastOf{
			{DeliveryKey{0, 300}, Past{Job: 7, Deaths: 1, Replays: 1, Attempts: 4, First: engine.Exhausted, FirstAt: 10, Revived: 20}},
		}, []JobCount{{Number: 7, Taken: 2, Delivered: 1}}},
		{Record{Kind: Dead, Position: 300, At: at(30), Attempt: 3, Reason: engine.Rejected}, []PastOf{
			{DeliveryKey{0, 300}, Past{Job: 7, Deaths: 2, Replays: 1, Attempts: 4, First: engine.Exhausted, FirstAt: 10, Revived: 20}},
		}, []JobCount{{Number: 7, Taken: 2, Delivered: 1, Dead: 1}}},
		{Record{Kind: Held, Ref: 9, Positions: []Position{300}, N: 1, At: at(31)}, []PastOf{
			{DeliveryKey{0, held}, Past{Job: 7, Deaths: 2, Replays: 1, Attempts: 4, First: engine.Exhausted, FirstAt: 10, Revived: 20}},
		}, nil},
		{Record{Kind: Revived, Position: held, N: 1, At: at(40), Attempt: 1, Ref: 8}, []PastOf{
			{DeliveryKey{0, held}, Past{Job: 8, Deaths: 2, Replays: 2, Attempts: 6, First: engine.Exhausted, FirstAt: 10, Revived: 40}},
		}, []JobCount{{Number: 7, Taken: 2, Delivered: 1, Dead: 1}, {Number: 8, Taken: 1}}},
		{Record{Kind: Resent, Position: 301, At: at(50)}, []PastOf{
			{DeliveryKey{0, 301}, Past{Revived: 50}},
			{DeliveryKey{0, held}, Past{Job: 8, Deaths: 2, Replays: 2, Attempts: 6, First: engine.Exhausted, FirstAt: 10, Revived: 40}},
		}, nil},
		{Record{Kind: LaneCancelled, Position: 1000, At: at(60)}, []PastOf{}, []JobCount{{Number: 7, Taken: 2, Delivered: 1, Dead: 1}, {Number: 8, Taken: 1, Cancelled: 1}}},
	}
	for checkpoint := range len(steps) + 1 {
		f := newFold(nil)
		f.base.Cursor = 0
		var past []PastOf
		var jobs []JobCount
		for i := range steps {
			if i == checkpoint {
				f = newFold(again(t, &f.state().Checkpoint))
			}
			s := &steps[i]
			f.apply(&s.rec)
			if s.past != nil {
				past = s.past
			}
			if s.jobs != nil {
				jobs = s.jobs
			}
			got := f.state()
			if len(got.Past)+len(past) > 0 && !reflect.DeepEqual(got.Past, past) || !reflect.DeepEqual(got.Jobs, jobs) {
				t.Fatalf("checkpoint before %d, after %d:\n%+v\n%+v\nwant\n%+v\n%+v", checkpoint, i, got.Past, got.Jobs, past, jobs)
			}
			if c := got.Lanes[0].Counters; !c.Balanced() {
				t.Fatalf("after %d the account is %+v", i, c)
			}
		}
	}
}

// again writes a checkpoint and reads it.
func again(t *testing.T, cp *Checkpoint) *Checkpoint {
	t.Helper()
	var body []byte
	if err := encodeCheckpoint(cp, 50, func(piece []byte, _ bool) error { body = append(body, piece...); return nil }); err != nil {
		t.Fatal(err)
	}
	back, err := decodeCheckpoint(body)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// Attempts are counted over all lives; one attempt made is where a new life begins.
func TestAttemptsOfAllLivesAddUp(t *testing.T) {
	var p Past
	if p.Base() != 0 || p.Total(3) != 3 {
		t.Errorf("one life: base %d, total %d", p.Base(), p.Total(3))
	}
	p = p.Revive(1, Ref{Attempt: 5, Reason: engine.Exhausted, Stamp: 100}, 200)
	if p.Base() != 1 || p.Total(p.Base()) != 5 || p.Total(3) != 7 {
		t.Errorf("second life: %+v, total %d", p, p.Total(3))
	}
	p = p.Die(engine.Rejected, 300).Revive(2, Ref{Attempt: 3, Reason: engine.Rejected, Stamp: 300}, 400)
	if p.Attempts != 7 || p.Deaths != 2 || p.Replays != 2 || p.First != engine.Exhausted || p.FirstAt != 100 || p.Job != 2 || p.Revived != 400 {
		t.Errorf("third life: %+v", p)
	}
}

// Jobs are kept over restarts, and forgotten when there are too many that have ended.
func TestJobsAreKept(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	if _, err := j.link.js.KeyValue(t.Context(), jobsBucket); err == nil {
		t.Error("a bucket before the first job")
	}
	first, err := j.PutJob(t.Context(), Job{Tenant: "acme", Reasons: []string{"rejected"}, Bound: 77, State: JobRunning, Selected: 5})
	if err != nil || first.Number != 1 || first.ID == "" {
		t.Fatal(first, err)
	}
	second, err := j.PutJob(t.Context(), Job{Tenant: "beta", State: JobRunning})
	if err != nil || second.Number != 2 || second.ID == first.ID {
		t.Fatal(second, err)
	}
	first.State, first.Count = JobDone, JobCount{Number: 1, Taken: 5, Delivered: 5}
	if first, err = j.PutJob(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	closeJournal(t, j)
	j = open(t, testOptions(dir))
	if got := j.Jobs(); !reflect.DeepEqual(got, []Job{first, second}) {
		t.Errorf("\n%+v\n%+v\n%+v", got, first, second)
	}
	if got, ok := j.Job(second.ID); !ok || got.Tenant != "beta" {
		t.Errorf("%+v, %v", got, ok)
	}
	if third, err := j.PutJob(t.Context(), Job{State: JobRunning}); err != nil || third.Number != 3 {
		t.Errorf("%+v, %v", third, err)
	}
}

// Of replays that have ended a tenant's oldest are forgotten, never another's.
func TestATenantForgetsItsOwnReplaysAlone(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	kept, err := j.PutJob(t.Context(), Job{Tenant: "beta", State: JobDone})
	if err != nil {
		t.Fatal(err)
	}
	for range jobsMost + 5 {
		if _, err := j.PutJob(t.Context(), Job{Tenant: "acme", State: JobDone}); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := j.Job(kept.ID); !ok {
		t.Error("beta's was forgotten for acme's")
	}
	if n := len(j.Jobs()); n != jobsMost+1 {
		t.Errorf("%d are kept, want %d and one", n, jobsMost)
	}
}

// Tiers of the API are kept over restarts, and a removed one is gone.
func TestTiersAreKept(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	if _, err := j.link.js.KeyValue(t.Context(), tiersBucket); err == nil {
		t.Error("a bucket before the first tier")
	}
	gold := Tier{Name: "gold", Rate: "5/s", Burst: 9, CapAuto: CapAuto{2, 8}, Inbound: Inbound{"1/s", 2, 3}}
	for _, tier := range []Tier{{Name: "gold"}, {Name: "tin", Weight: 2}, {Name: "gone"}, gold} {
		if err := j.PutTier(t.Context(), tier); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.DeleteTier(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if err := j.DeleteTier(t.Context(), "gone"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	closeJournal(t, j)
	j = open(t, testOptions(dir))
	gold.Format = recordFormat
	if got := j.Tiers(); !reflect.DeepEqual(got, []Tier{gold, {Format: recordFormat, Name: "tin", Weight: 2}}) {
		t.Errorf("%+v", got)
	}
	if err := j.PutTier(t.Context(), Tier{Name: "gone", Cap: 1}); err != nil { // a name may come back
		t.Fatal(err)
	}
	if len(j.Tiers()) != 3 {
		t.Errorf("%+v", j.Tiers())
	}
	closeJournal(t, j)
}
