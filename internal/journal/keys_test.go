package journal

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// waitReady returns when keyed posts are let in.
func waitReady(t testing.TB, j *Journal) {
	t.Helper()
	for !j.append.ready.Load() {
		if t.Context().Err() != nil {
			t.Fatal("the key index does not get ready")
		}
		pause(t.Context(), time.Millisecond)
	}
}

// Field case 4.
func TestKeyIsDecidedByTheLog(t *testing.T) {
	dir := t.TempDir()
	j := open(t, testOptions(dir))
	waitReady(t, j)
	first := mustAppend(t, j, keyed(1, "k", "A"))
	for _, step := range []struct {
		what    string
		trigger *Trigger
		repeat  bool
		err     error
	}{
		{"same request again", keyed(2, "k", "A"), true, nil},
		{"another body", keyed(3, "k", "B"), false, ErrKeyConflict},
		{"another key", keyed(4, "l", "A"), false, nil},
		{"still the first", keyed(5, "k", "A"), true, nil},
	} {
		r, err := j.Append(t.Context(), step.trigger)
		if !errors.Is(err, step.err) || r.Repeat != step.repeat {
			t.Errorf("%s: %+v, %v", step.what, r, err)
		}
		if step.repeat && (r.ID != first.ID || r.Position != first.Position) {
			t.Errorf("%s: %+v, the first was %+v", step.what, r, first)
		}
	}
	other := keyed(6, "k", "B")
	other.Producer = "prod_2"
	if r, err := j.Append(t.Context(), other); err != nil || r.Repeat || r.ID == first.ID {
		t.Errorf("same key of another producer: %+v, %v", r, err)
	}
	if got := len(readAll(t, j, 0)); got != 3 {
		t.Errorf("%d triggers in the log, 3 expected", got)
	}
	closeJournal(t, j)

	j = open(t, testOptions(dir))
	waitReady(t, j)
	if r, err := j.Append(t.Context(), keyed(7, "k", "A")); err != nil || !r.Repeat || r.Position != first.Position {
		t.Errorf("after a restart: %+v, %v", r, err)
	}
	if _, err := j.Append(t.Context(), keyed(8, "k", "B")); !errors.Is(err, ErrKeyConflict) {
		t.Errorf("conflict after a restart: %v", err)
	}
}

// Field case 4.
func TestKeyPostedAtOnceByManyIsOneTrigger(t *testing.T) {
	entered, release := make(chan struct{}, 100), make(chan struct{})
	j, on := openIntercepted(t, testOptions(t.TempDir()), triggersSubject, func(store func() (uint64, error)) (uint64, error) {
		entered <- struct{}{}
		<-release
		return store()
	})
	waitReady(t, j)
	on.Store(true)
	go j.Append(t.Context(), trigger(0)) // while this is being written the others gather for one pack
	<-entered
	var wg sync.WaitGroup
	var firsts, repeats, conflicts atomic.Int32
	var mu sync.Mutex
	positions := make(map[Position]string)
	for i := range 60 {
		body := "A"
		if i%3 == 0 {
			body = "B"
		}
		wg.Go(func() {
			r, err := j.Append(t.Context(), keyed(i, "k", body))
			switch {
			case errors.Is(err, ErrKeyConflict):
				conflicts.Add(1)
			case err != nil:
				t.Error(err)
			default:
				mu.Lock()
				positions[r.Position] = body
				mu.Unlock()
				if r.Repeat {
					repeats.Add(1)
				} else {
					firsts.Add(1)
				}
			}
		})
	}
	eventually(t, "all wait", func() bool { return j.append.waiting() == 60 })
	close(release)
	wg.Wait()
	if firsts.Load() != 1 || len(positions) != 1 || int(repeats.Load()+conflicts.Load()) != 59 {
		t.Fatalf("%d firsts, %d repeats, %d conflicts, at %v", firsts.Load(), repeats.Load(), conflicts.Load(), positions)
	}
	for p, body := range positions {
		if want := map[string]int32{"A": 39, "B": 19}[body]; repeats.Load() != want {
			t.Errorf("%s was first: %d repeats, want %d", body, repeats.Load(), want)
		}
		tr, err := j.Load(t.Context(), p)
		if err != nil || string(tr.Payload) != body {
			t.Errorf("%v, %v", tr, err)
		}
	}
	if got := readAll(t, j, 0); len(got) != 2 {
		t.Errorf("%d triggers for readers", len(got))
	}
}

// Whoever reads decides alike, wherever they begin, also when the packs of two writers cross.
func TestVoidEntriesFollowFromTheLogAlone(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	mustAppend(t, j, trigger(0))
	base := j.last()
	store := func(writer, counter, prev uint64, ts ...*Trigger) uint64 {
		var entries [][]byte
		for _, tr := range ts {
			entries = append(entries, appendTrigger(nil, tr))
		}
		seq, err := j.link.publish(t.Context(), triggersSubject, encodePack(header{writer: writer, counter: counter, prev: prev}, entries))
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	store(7, 1, base, keyed(1, "a", "first"), keyed(2, "a", "again, in the same pack")) // +1
	store(8, 1, base, keyed(3, "a", "crossing"), keyed(4, "b", "first"))                // +2
	store(7, 2, base+1, keyed(5, "b", "crossing"), keyed(6, "c", "first"))              // +3
	store(7, 2, base+1, keyed(5, "b", "second copy"), keyed(6, "c", "second copy"))     // +4
	store(8, 2, base+4, keyed(7, "a", "its writer knew the first, out of its window"))  // +5
	store(7, 3, base+5, trigger(8))                                                     // +6
	last := store(7, 3, base+5, trigger(9), trigger(10))                                // +7
	j.durable.raise(last)
	want := map[Position]string{
		position(base+1, 0): "first", position(base+2, 1): "first", position(base+3, 1): "first",
		position(base+5, 0): "its writer knew the first, out of its window", position(base+6, 0): `{"n":8}`,
	}
	for seq := base + 1; seq <= last; seq++ {
		seen := 0
		for _, tr := range readAll(t, j, position(seq, 0)) {
			if want[tr.Position] != string(tr.Payload) {
				t.Errorf("from %d: position %d is %q, want %q", seq, tr.Position, tr.Payload, want[tr.Position])
			}
			seen++
		}
		for p := range want {
			if p.Seq() >= seq {
				seen--
			}
		}
		if seen != 0 {
			t.Errorf("from %d: %d triggers too many", seq, seen)
		}
	}
	if _, err := j.Load(t.Context(), position(base+1, 1)); !errors.Is(err, ErrNotFound) {
		t.Errorf("a void repeat loads: %v", err)
	}
}

func TestKeyedPostsWaitForTheIndex(t *testing.T) {
	j := open(t, testOptions(t.TempDir()))
	waitReady(t, j)
	j.append.ready.Store(false)
	if _, err := j.Append(t.Context(), keyed(1, "k", "A")); !errors.Is(err, ErrStarting) {
		t.Error(err)
	}
	mustAppend(t, j, trigger(2)) // one without a key does not
	j.append.ready.Store(true)
	if r := mustAppend(t, j, keyed(3, "k", "A")); r.Repeat {
		t.Error("the refused one was stored")
	}
}

func TestKeyIsNewBehindTheWindow(t *testing.T) {
	o := testOptions(t.TempDir())
	o.tune.most = 3
	j := open(t, o)
	waitReady(t, j)
	for i := range 4 {
		mustAppend(t, j, keyed(i, fmt.Sprint(i), "A"))
	}
	if r := mustAppend(t, j, keyed(5, "3", "A")); !r.Repeat {
		t.Error("the newest key is forgotten")
	}
	r := mustAppend(t, j, keyed(6, "0", "B"))
	if r.Repeat {
		t.Error("a key behind three others is still known")
	}
	for _, tr := range readAll(t, j, 0) { // what was new then is new for readers
		if tr.Position == r.Position {
			return
		}
	}
	t.Error("the second use is void for readers")
}

// twinKeys is a list of uses, searched from the front.
type twinKeys struct {
	uses []keyUse
}

func TestKeyIndexEqualsAListThatIsSearched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, most := time.Duration(rapid.IntRange(1, 30).Draw(t, "window"))*time.Second, rapid.IntRange(1, 6).Draw(t, "most")
		k, twin := newKeyIndex(window, most), twinKeys{}
		now := time.UnixMilli(1_800_000_000_000)
		for seq := uint64(1); seq < uint64(rapid.IntRange(2, 40).Draw(t, "packs")); seq++ {
			now = now.Add(time.Duration(rapid.IntRange(-1, 10).Draw(t, "later")) * time.Second)
			p := &Pack{Seq: seq, At: now}
			for i := range rapid.IntRange(0, 3).Draw(t, "entries") {
				tr := keyed(i, rapid.StringMatching("[a-e]").Draw(t, "key"), "A")
				tr.Position = position(seq, i)
				p.Entries = append(p.Entries, Entry{Position: tr.Position, Trigger: tr})
				id, fp := keyOf(tr)
				twin.uses = append(twin.uses, keyUse{id, fp, tr.Position, now.UnixMilli()})
			}
			k.pass(p)
			for len(twin.uses) > 0 && (len(twin.uses) > most || twin.uses[0].at < now.Add(-window).UnixMilli()) {
				twin.uses = twin.uses[1:]
			}
			if rapid.IntRange(0, 9).Draw(t, "trim") == 0 {
				first := position(seq-min(seq, 3), 0)
				k.trimmed(first)
				for len(twin.uses) > 0 && twin.uses[0].position < first {
					twin.uses = twin.uses[1:]
				}
			}
			for _, key := range []string{"a", "b", "c", "d", "e"} {
				id, _ := keyOf(keyed(0, key, "A"))
				got, ok := k.find(id, now)
				var want keyUse
				known := false
				for _, u := range twin.uses { // the newest use rules
					if u.id == id {
						want, known = u, now.UnixMilli()-u.at < window.Milliseconds()
					}
				}
				if ok != known || ok && got != want {
					t.Fatalf("key %s: %+v %v, want %+v %v", key, got, ok, want, known)
				}
			}
		}
		if len(k.byKey) > len(k.uses) || len(k.uses) > most {
			t.Fatalf("%d keys, %d uses", len(k.byKey), len(k.uses))
		}
	})
}
