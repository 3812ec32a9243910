package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRegistrySurvivesReopen(t *testing.T) {
	s := newStand(t)
	for i := range 3 {
		ten, _ := s.putTenant(Tenant{ID: fmt.Sprintf("t%d", i), Name: "Ünï", Tier: "pro", Grants: []Grant{{Topics: []string{"a.*"}}}, Suspended: i == 1})
		if ten.Number != uint32(i) || ten.Created.IsZero() {
			t.Fatalf("tenant %d: %+v", i, ten)
		}
	}
	for i := range 4 {
		sub, p := s.put(example("t1"))
		if sub.Lane != uint32(i) || sub.Created.IsZero() || p == 0 || sub.Revision == 0 {
			t.Fatalf("subscription %d at %d: %+v", i, p, sub)
		}
	}
	tenants, subs, revision := s.Tenants(), s.Subscriptions(), s.Revision()
	markers := len(s.log.markers)
	for range 2 {
		s.reopen()
		if got := s.Tenants(); !reflect.DeepEqual(got, tenants) {
			t.Errorf("tenants after reopening:\n%+v\nwant\n%+v", got, tenants)
		}
		if got := s.Subscriptions(); !reflect.DeepEqual(got, subs) {
			t.Errorf("subscriptions after reopening:\n%+v\nwant\n%+v", got, subs)
		}
		if s.Revision() != revision {
			t.Errorf("revision %d, want %d", s.Revision(), revision)
		}
	}
	if len(s.log.markers) != markers {
		t.Errorf("reopening appended %d markers", len(s.log.markers)-markers)
	}
	if sub, _ := s.put(example("t2")); sub.Lane != 4 {
		t.Errorf("next lane is %d", sub.Lane)
	}
}

func TestVersionsStandAtTheirMarkers(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	sub, created := s.put(Subscription{Tenant: "acme", URL: "https://a.test/", Versions: topics("a")})
	sub.Versions = append(sub.Versions, Version{Topics: []string{"a", "b"}})
	sub, edited := s.put(sub)
	sub.Paused = true
	sub, paused := s.put(sub)
	sub.Versions = nil // leaves the topics alone
	sub.URL = "https://b.test/"
	sub, _ = s.put(sub)
	sub, deleted := s.put(Subscription{ID: sub.ID, Deleted: true})

	want := []Version{{From: created, Topics: []string{"a"}, Active: true}, {From: edited, Topics: []string{"a", "b"}, Active: true}, {From: deleted, Topics: []string{"a", "b"}, Active: false}}
	for range 2 {
		got, _ := s.Subscription(sub.ID)
		if !reflect.DeepEqual(got.Versions, want) {
			t.Fatalf("versions %+v, want %+v", got.Versions, want)
		}
		s.reopen()
	}
	for _, c := range []struct {
		at     Position
		ok     bool
		topics int
		active bool
	}{
		{created - 1, false, 0, false}, {created, true, 1, true}, {edited - 1, true, 1, true},
		{edited, true, 2, true}, {paused, true, 2, true}, {deleted - 1, true, 2, true}, {deleted + 1, true, 2, false},
	} {
		v, ok := sub.At(c.at)
		if ok != c.ok || len(v.Topics) != c.topics || v.Active != c.active {
			t.Errorf("at %d: %+v, %v; want %+v", c.at, v, ok, c)
		}
	}
	if m := s.log.markers[edited]; m.Kind != "subscription" || m.ID != sub.ID || m.Revision == 0 {
		t.Errorf("marker %+v", m)
	}
}

func TestVersionsBelowTheFloorAreForgotten(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	sub, _ := s.put(Subscription{Tenant: "acme", URL: "u", Versions: topics("0")})
	var at []Position
	for i := range 5 {
		sub.Versions = topics(fmt.Sprint(i + 1))
		var p Position
		sub, p = s.put(sub)
		at = append(at, p)
	}
	s.setFloor(at[2] + 5)
	sub.Versions = topics("last")
	sub, _ = s.put(sub)
	if len(sub.Versions) != 4 || sub.Versions[0].From != at[2] {
		t.Fatalf("floor %d: %+v", at[2]+5, sub.Versions)
	}
	if v, ok := sub.At(at[2] + 5); !ok || v.Topics[0] != "3" {
		t.Fatalf("at the floor: %+v, %v", v, ok)
	}
}

// A crash between the record and its marker: the change was not acknowledged, and takes effect
// at a position of its own when the registry is opened again.
func TestCrashBetweenRecordAndMarker(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	sub, created := s.put(Subscription{Tenant: "acme", URL: "u", Versions: topics("a")})

	s.log.fail = func(Marker) error { return errors.New("crash") }
	edit := sub.clone()
	edit.Versions = topics("b")
	if _, _, err := s.PutSubscription(t.Context(), edit); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("edit without marker: %v", err)
	}
	if got, _ := s.Subscription(sub.ID); !reflect.DeepEqual(got, sub) {
		t.Fatalf("visible before its marker: %+v", got)
	}
	s.log.fail = nil
	s.reopen()

	got, _ := s.Subscription(sub.ID)
	want := []Version{{From: created, Topics: []string{"a"}, Active: true}, {From: s.log.last, Topics: []string{"b"}, Active: true}}
	if !reflect.DeepEqual(got.Versions, want) {
		t.Fatalf("after reopening %+v, want %+v", got.Versions, want)
	}
	if m := s.log.markers[s.log.last]; m.ID != sub.ID {
		t.Errorf("marker %+v", m)
	}
	s.reopen()
	if again, _ := s.Subscription(sub.ID); !reflect.DeepEqual(again, got) {
		t.Errorf("second reopening: %+v, want %+v", again, got)
	}
}

// Without a crash the next write, of whatever record, completes the one in doubt first.
func TestWriteInDoubtIsCompletedByTheNext(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	for name, broken := range map[string]func(func(Marker) error){
		"marker not written":   func(f func(Marker) error) { s.log.fail = f },
		"marker's answer lost": func(f func(Marker) error) { s.log.lost = f },
	} {
		before := len(s.Subscriptions())
		broken(func(Marker) error { return errors.New("no answer") })
		_, _, err := s.PutSubscription(t.Context(), Subscription{Tenant: "acme", URL: "u", Versions: topics("a")})
		if !errors.Is(err, ErrUnavailable) || len(s.Subscriptions()) != before {
			t.Fatalf("%s: %v", name, err)
		}
		broken(nil)
		second, p := s.put(Subscription{Tenant: "acme", URL: "u", Versions: topics("a")})
		subs := s.Subscriptions()
		if len(subs) != before+2 || int(second.Lane) != before+1 {
			t.Fatalf("%s: %d subscriptions, second is %+v", name, len(subs), second)
		}
		first := subs[before]
		if first.Versions[0].From == 0 || first.Versions[0].From >= p {
			t.Errorf("%s: completed at %+v, the next at %d", name, first.Versions, p)
		}
	}
}

// The reader of the log may come to a marker before the writer learns that it is durable.
func TestReaderPutsAChangeIntoForceAtItsMarker(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	sub, _ := s.put(Subscription{Tenant: "acme", URL: "u", Versions: topics("a")})
	var seen []Version
	s.log.lost = func(m Marker) error {
		s.Reached(Marker{m.Kind, m.ID, m.Revision - 1}, 99) // an older one
		s.Reached(m, s.log.last)
		got, _ := s.Subscription(sub.ID)
		seen = got.Versions
		return nil
	}
	sub.Versions = topics("b")
	sub, p := s.put(sub)
	if len(seen) != 2 || seen[1].From != p || !reflect.DeepEqual(seen, sub.Versions) {
		t.Fatalf("at the marker: %+v; answered %+v at %d", seen, sub.Versions, p)
	}
	s.log.lost = nil
	s.Reached(s.log.markers[p], p+512) // read again
	if got, _ := s.Subscription(sub.ID); !reflect.DeepEqual(got, sub) {
		t.Errorf("read again: %+v, want %+v", got, sub)
	}
}

// Field case 97. Names are labels: ids stay, references stay, an id is never given to another.
func TestRenamingAndDeletingTenantsKeepsIdentity(t *testing.T) {
	s := newStand(t)
	a, _ := s.putTenant(Tenant{ID: "a", Name: "A"})
	b, _ := s.putTenant(Tenant{ID: "b", Name: "B"})
	sub, _ := s.put(Subscription{Tenant: "a", URL: "u", Versions: topics("x"), Secrets: [][]byte{randomBytes(32)}})
	for _, name := range []string{"B", "C"} { // A -> B -> C at once, B's name taken over
		a.Name = name
		a.Number, a.Created = 77, time.Time{} // not the caller's to change
		a, _ = s.putTenant(a)
	}
	b.Name = "A"
	s.putTenant(b)
	s.reopen()
	ta, _ := s.Tenant("a")
	tb, _ := s.Tenant("b")
	if ta.Name != "C" || ta.Number != 0 || ta.Created.IsZero() || tb.Name != "A" || tb.Number != 1 {
		t.Errorf("after renaming: %+v, %+v", ta, tb)
	}
	if got, _ := s.Subscription(sub.ID); !reflect.DeepEqual(got, sub) {
		t.Errorf("renaming its tenant changed %+v to %+v", sub, got)
	}
	sub.Tenant = "b"
	var field *FieldError
	if _, _, err := s.PutSubscription(t.Context(), sub); !errors.As(err, &field) || field.Field != "tenant" {
		t.Errorf("moving a subscription: %v", err)
	}
	if _, _, err := s.PutTenant(t.Context(), Tenant{ID: "a", Deleted: true}); !errors.Is(err, ErrInUse) {
		t.Errorf("deleting a tenant that has subscriptions: %v", err)
	}
	s.put(Subscription{ID: sub.ID, Deleted: true})
	s.putTenant(Tenant{ID: "a", Deleted: true})
	s.reopen()
	if _, _, err := s.PutTenant(t.Context(), Tenant{ID: "a"}); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "id was used before") {
		t.Errorf("reusing a tenant's id: %v", err)
	}
	if _, _, err := s.PutSubscription(t.Context(), Subscription{ID: sub.ID, URL: "u"}); !errors.Is(err, ErrGone) {
		t.Errorf("reusing a subscription's id: %v", err)
	}
	if _, _, err := s.PutSubscription(t.Context(), Subscription{Tenant: "a", URL: "u"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("subscribing for a deleted tenant: %v", err)
	}
	if c, _ := s.putTenant(Tenant{ID: "c"}); c.Number != 2 {
		t.Errorf("a deleted tenant's number was given again: %+v", c)
	}
	if d, _ := s.put(Subscription{Tenant: "c", URL: "u"}); d.Lane != 1 || d.ID == sub.ID {
		t.Errorf("a deleted subscription's lane or id was given again: %+v", d)
	}
}

// Field case 62. What lies on disk gives away neither secrets nor what in a URL may be one.
func TestNoSecretLiesInClearInTheStore(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	sub, _ := s.put(full("acme"))
	sub.Versions = topics("b")
	sub, _ = s.put(sub)
	s.stop()
	found := false
	err := filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte(sub.ID))
		for _, secret := range []string{"SECRET", "U0VDUkVU"} { // in clear, and in base64
			if bytes.Contains(data, []byte(secret)) {
				t.Errorf("%s contains %s", path, secret)
			}
		}
		return err
	})
	if err != nil || !found {
		t.Fatalf("the store was not searched: %v", err)
	}
	s.start()
	got, _ := s.Subscription(sub.ID)
	if got.URL != exampleURL || !reflect.DeepEqual(got.Secrets, sub.Secrets) || len(got.Secrets) != 2 {
		t.Errorf("not readable again: %+v", got)
	}
	gone, _ := s.put(Subscription{ID: sub.ID, Deleted: true})
	if gone.Secrets != nil {
		t.Error("a deleted subscription keeps its secrets")
	}
}

// A delete that ended in doubt can be repeated, and answers as the first would have.
func TestDeleteInDoubtCanBeRepeated(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme"})
	sub, _ := s.put(Subscription{Tenant: "acme", URL: "u", Versions: topics("a")})
	s.log.fail = func(Marker) error { return errors.New("no answer") }
	if _, _, err := s.PutSubscription(t.Context(), Subscription{ID: sub.ID, Deleted: true}); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	s.log.fail = nil
	for range 2 {
		gone, p := s.put(Subscription{ID: sub.ID, Deleted: true})
		if v, ok := gone.At(p); !gone.Deleted || !ok || v.Active || len(gone.Versions) != 2 {
			t.Fatalf("deleted at %d: %+v", p, gone)
		}
		s.putTenant(Tenant{ID: "acme", Deleted: true})
	}
}

func TestReadsReturnCopies(t *testing.T) {
	s := newStand(t)
	s.putTenant(Tenant{ID: "acme", Grants: []Grant{{Topics: []string{"a"}}}})
	sub, _ := s.put(example("acme"))
	want, _ := s.Subscription(sub.ID)
	for _, c := range []Subscription{sub, s.Subscriptions()[0]} {
		c.Secrets[0][0], c.Outcomes["404"], c.Versions[0].Topics[0], *c.Limits.Cap = 'x', "x", "x", 99
	}
	s.Tenants()[0].Grants[0].Topics[0] = "x"
	if got, _ := s.Subscription(sub.ID); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, _ := s.Tenant("acme"); got.Grants[0].Topics[0] != "a" {
		t.Errorf("%+v", got)
	}
}

func TestConcurrentWritesGiveDenseNumbersAndDistinctIDs(t *testing.T) {
	s := newStand(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			id := fmt.Sprintf("t%d", i%8) // two writers a tenant
			if _, _, err := s.PutTenant(t.Context(), Tenant{ID: id}); err != nil {
				t.Error(err)
			}
			if _, _, err := s.PutSubscription(t.Context(), Subscription{Tenant: id, URL: "u", Versions: topics("a")}); err != nil {
				t.Error(err)
			}
			s.Subscriptions()
		})
	}
	wg.Wait()
	s.reopen()
	ids := make(map[string]bool)
	for i, sub := range s.Subscriptions() {
		ids[sub.ID] = true
		if sub.Lane != uint32(i) || checkSubscriptionID(sub.ID) != nil {
			t.Errorf("%d: %+v", i, sub)
		}
	}
	if len(ids) != 16 || len(s.Tenants()) != 8 {
		t.Errorf("%d subscriptions, %d tenants", len(ids), len(s.Tenants()))
	}
}

// Waiting for the turn ends with its context; a write that has begun does not.
func TestCallerThatGoesLeavesNoHalfWrite(t *testing.T) {
	s := newStand(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.putTenant(Tenant{ID: "a"})
	s.log.lost = func(Marker) error { cancel(); return nil }
	if _, _, err := s.PutSubscription(ctx, Subscription{Tenant: "a", URL: "u"}); err != nil {
		t.Fatalf("write that had begun: %v", err)
	}
	s.turn <- struct{}{}
	if _, _, err := s.PutTenant(ctx, Tenant{ID: "b"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("write that had not begun: %v", err)
	}
	<-s.turn
}

// The registry on the journal itself: changes stand in TRIGGERS where they say, and survive.
func TestRegistryOnTheJournal(t *testing.T) {
	o := Options{Dir: t.TempDir(), MinFree: func() (int64, int64) { return 1 << 40, 1 << 39 }}
	j, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	_, first, err := j.Registry().PutTenant(t.Context(), Tenant{ID: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	sub, created, err := j.Registry().PutSubscription(t.Context(), example("acme"))
	if err != nil || created <= first || sub.Versions[0].From != created {
		t.Fatalf("created at %d after %d: %+v, %v", created, first, sub, err)
	}
	r, err := j.Reader(first)
	if err != nil {
		t.Fatal(err)
	}
	var found *Marker
	for found == nil {
		pack, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range pack.Entries {
			if e.Position == created {
				found = e.Marker
			}
		}
	}
	r.Close()
	if found == nil || found.ID != sub.ID || found.Kind != "subscription" {
		t.Errorf("at %d stands %+v", created, found)
	}
	if _, err := Open(t.Context(), o); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	for range 2 {
		if err := j.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if j, err = Open(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if got, _ := j.Registry().Subscription(sub.ID); !reflect.DeepEqual(got, sub) {
			t.Errorf("after reopening %+v, want %+v", got, sub)
		}
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
