package journal

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

var torture = flag.Bool("torture", false, "crash tests of many rounds")

// A child process of the test binary runs a journal until it is killed, and says on standard output, a
// line each, what has been acknowledged.
const (
	childEnv     = "FAIRLANE_JOURNAL_CHILD"   // its directory
	childModeEnv = "FAIRLANE_JOURNAL_MODE"    // of: nosync; big: large payloads; trim: everything decided is purged
	childMostEnv = "FAIRLANE_JOURNAL_APPENDS" // ends by itself after so many; none is never

	crashLanes = 4
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(m.Run())
}

// child appends from eight goroutines, and delivers everything to every lane.
func child(dir string) error {
	o, mode := testOptions(dir), os.Getenv(childModeEnv)
	o.NoSync = strings.Contains(mode, "nosync")
	o.tune.flush = 1 << 10 // checkpoints of several messages
	if strings.Contains(mode, "trim") {
		o.History, o.tune.kept, o.tune.trim = 1, 1, 10*time.Millisecond
		fmt.Println("T")
	}
	size := 600
	if strings.Contains(mode, "big") {
		size = 200 << 10
	}
	j, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	fmt.Println("open")
	most, _ := strconv.Atoi(os.Getenv(childMostEnv))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg, delivering sync.WaitGroup
	for w := range 8 {
		wg.Go(func() { childAppends(ctx, j, w, most/8, size) })
	}
	delivering.Go(func() { childDelivers(ctx, j) })
	if most == 0 {
		select {} // until killed
	}
	wg.Wait()
	cancel()
	delivering.Wait()
	os.Exit(0) // without a clean stop
	return nil
}

func childAppends(ctx context.Context, j *Journal, worker, most, size int) {
	for n := 0; most == 0 || n < most; n++ {
		body := fmt.Sprintf("%d %d %d %s", j.epoch, worker, n, strings.Repeat("x", rand.IntN(size)))
		t := trigger(n)
		t.Payload = []byte(body)
		if n%4 == 3 {
			t = keyed(n, fmt.Sprintf("%d-%d-%d", j.epoch, worker, n), body)
		}
		r, err := j.Append(ctx, t)
		if errors.Is(err, ErrStarting) {
			n--
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "append:", err)
			os.Exit(1)
		}
		sum := sha256.Sum256(t.Payload)
		fmt.Printf("A %d %s %x\n", r.Position, r.ID, sum[:8])
	}
}

// childDelivers is a driver in small: it delivers every trigger to every lane, from where the state says,
// and keeps the account.
func childDelivers(ctx context.Context, j *Journal) {
	d := newMiniDriver(j)
	if strings.Contains(os.Getenv(childModeEnv), "trim") {
		d.says = os.Stdout
	}
	for ctx.Err() == nil {
		mark, recs, err := d.step(ctx)
		if err != nil {
			return
		}
		if j.WaitFlushed(ctx, mark) == nil {
			for _, r := range recs {
				fmt.Printf("R %d %d\n", r.Lane, r.Position)
			}
		}
	}
}

// miniDriver delivers to crashLanes lanes; a third of the deliveries fails once and is delivered next time.
type miniDriver struct {
	j      *Journal
	st     *State
	r      *Reader
	lanes  [crashLanes]LaneState
	cursor Position
	packs  int
	says   io.Writer
}

func newMiniDriver(j *Journal) *miniDriver {
	d := &miniDriver{j: j, st: j.State(), says: io.Discard}
	for i := range d.lanes {
		d.lanes[i].Lane = engine.LaneID(i)
	}
	for _, l := range d.st.Lanes {
		d.lanes[l.Lane] = l
	}
	d.cursor = d.st.Cursor
	d.r, _ = j.Reader(d.cursor)
	var recs []Record
	for _, o := range d.st.Open { // unknown outcome: another attempt
		l := &d.lanes[o.Lane]
		l.Counters.InFlight--
		l.Counters.Parked++
		l.Waiting = append(l.Waiting, Ref{Position: o.Position, Attempt: o.Attempt + 1, Reason: engine.ByShutdown})
		recs = append(recs, miniRecord(Parked, o.Lane, o.Position, o.Attempt+1))
	}
	j.Record(recs...)
	return d
}

func miniRecord(k Kind, lane engine.LaneID, p Position, attempt uint32) Record {
	return Record{Kind: k, Partition: 1, Lane: lane, Position: p, Attempt: attempt, At: time.Now()}
}

// step delivers one pack, and what waits, and now and then writes a checkpoint.
func (d *miniDriver) step(ctx context.Context) (Mark, []Record, error) {
	p, err := d.r.Next(ctx)
	if err != nil {
		return 0, nil, err
	}
	var recs []Record
	for i := range d.lanes {
		recs = append(recs, d.retry(&d.lanes[i])...)
	}
	for _, e := range p.Entries {
		if e.Trigger != nil {
			for i := range d.lanes {
				recs = append(recs, d.offer(&d.lanes[i], e.Position)...)
			}
		}
		d.cursor = e.Position + 1
	}
	mark := d.j.Record(recs...)
	if d.packs++; d.packs%8 == 0 {
		fmt.Fprintf(d.says, "F %d\n", d.cursor) // from here on it may be purged
		d.j.SetFloor(d.cursor)
		mark = d.j.Checkpoint(d.snapshot())
	}
	return mark, recs, nil
}

func (d *miniDriver) offer(l *LaneState, p Position) []Record {
	if _, done := d.st.Decided[DeliveryKey{l.Lane, p}]; done {
		return nil
	}
	l.Counters.Offered++
	if (uint64(p)+uint64(l.Lane))%3 == 0 {
		l.Counters.Parked++
		l.Waiting = append(l.Waiting, Ref{Position: p, Attempt: 1, Reason: engine.ByRetry})
		return []Record{miniRecord(Failed, l.Lane, p, 1)}
	}
	l.Counters.Delivered++
	return []Record{miniRecord(Delivered, l.Lane, p, 1)}
}

func (d *miniDriver) retry(l *LaneState) (recs []Record) {
	for _, w := range l.Waiting {
		recs = append(recs, miniRecord(Claimed, l.Lane, w.Position, w.Attempt+1), miniRecord(Delivered, l.Lane, w.Position, w.Attempt+1))
		l.Counters.Parked--
		l.Counters.Delivered++
	}
	l.Waiting = nil
	return recs
}

func (d *miniDriver) snapshot() *Checkpoint {
	cp := &Checkpoint{Cursor: d.cursor, At: time.Now()}
	for _, l := range d.lanes {
		l.Waiting = append([]Ref(nil), l.Waiting...)
		cp.Lanes = append(cp.Lanes, l)
	}
	return cp
}

// acknowledged is what children have said.
type acknowledged struct {
	triggers map[Position][2]string // id, sum of the payload
	records  map[DeliveryKey]struct{}
	trimmed  bool     // the ledger may have been purged up to the last checkpoint but one,
	floor    Position // and what is below
}

func newAcknowledged() *acknowledged {
	return &acknowledged{triggers: make(map[Position][2]string), records: make(map[DeliveryKey]struct{})}
}

// line takes in one line; one that was cut off by the kill says nothing.
func (a *acknowledged) line(s string) {
	f := strings.Fields(s)
	switch {
	case len(f) == 4 && f[0] == "A" && len(f[3]) == 16:
		p, _ := strconv.ParseUint(f[1], 10, 64)
		a.triggers[Position(p)] = [2]string{f[2], f[3]}
	case len(f) == 1 && f[0] == "T":
		a.trimmed = true
	case len(f) == 2 && f[0] == "F":
		p, _ := strconv.ParseUint(f[1], 10, 64)
		a.floor = Position(p)
	case len(f) == 3 && f[0] == "R":
		lane, _ := strconv.ParseUint(f[1], 10, 32)
		p, _ := strconv.ParseUint(f[2], 10, 64)
		a.records[DeliveryKey{engine.LaneID(lane), Position(p)}] = struct{}{}
	}
}

// lost returns what was acknowledged and is not in j.
func (a *acknowledged) lost(t testing.TB, j *Journal) (lost []string) {
	there := make(map[Position]*Trigger)
	for _, tr := range readAll(t, j, 0) {
		there[tr.Position] = tr
	}
	for p, want := range a.triggers {
		tr := there[p]
		if p < a.floor {
			continue
		}
		if tr == nil {
			lost = append(lost, fmt.Sprintf("trigger %d", p))
			continue
		}
		if sum := sha256.Sum256(tr.Payload); tr.ID != want[0] || fmt.Sprintf("%x", sum[:8]) != want[1] {
			lost = append(lost, fmt.Sprintf("trigger %d is another one: %s", p, tr.ID))
		}
	}
	recorded, covered := ledgerKeys(t, j), Position(0)
	if a.trimmed {
		covered = j.State().Cursor
	}
	for k := range a.records {
		if _, ok := recorded[k]; !ok && k.Position >= covered {
			lost = append(lost, fmt.Sprintf("record %+v", k))
		}
	}
	return lost
}

// ledgerKeys reads the whole ledger.
func ledgerKeys(t testing.TB, j *Journal) map[DeliveryKey]struct{} {
	t.Helper()
	keys := make(map[DeliveryKey]struct{})
	for lane := range engine.LaneID(crashLanes) {
		for before := uint64(0); ; {
			recs, next, err := j.Deliveries(t.Context(), lane, before, ledgerTop)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range recs {
				keys[DeliveryKey{lane, r.Position}] = struct{}{}
			}
			if before = next; next == 0 {
				break
			}
		}
	}
	return keys
}

// killedChild runs a child on dir, kills it some time after it has opened, and takes in what it said.
func killedChild(t *testing.T, dir string, after time.Duration, a *acknowledged) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	opened := false
	for lines.Scan() {
		if lines.Text() == "open" {
			opened = true
			time.AfterFunc(after, func() { cmd.Process.Kill() })
			continue
		}
		a.line(lines.Text())
	}
	cmd.Wait()
	if !opened || stderr.Len() > 0 {
		t.Fatalf("child: %s", stderr.String())
	}
}

// Field case 43.
// Field case 80.
func TestNothingAcknowledgedIsLostByKills(t *testing.T) {
	kills := 20
	if *torture {
		kills = 500
	} else if testing.Short() {
		kills = 3
	}
	dir, a := t.TempDir(), newAcknowledged()
	for i := range kills {
		killedChild(t, dir, time.Duration(rand.IntN(250))*time.Millisecond, a)
		if i%10 == 9 || i == kills-1 {
			checkAfterKills(t, dir, a)
		}
	}
	t.Logf("%d kills, %d triggers and %d records acknowledged", kills, len(a.triggers), len(a.records))
}

// checkAfterKills opens dir: what was acknowledged is there, and when everything has been delivered the
// account says so, exactly once for every trigger.
func checkAfterKills(t *testing.T, dir string, a *acknowledged) {
	t.Helper()
	j := open(t, testOptions(dir))
	defer closeJournal(t, j)
	if lost := a.lost(t, j); len(lost) > 0 {
		t.Fatalf("%d lost: %.1000q", len(lost), lost)
	}
	all := uint64(len(readAll(t, j, 0)))
	d := newMiniDriver(j)
	for d.cursor.Seq() < j.last() {
		if _, _, err := d.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	recs := []Record{}
	for i := range d.lanes {
		recs = append(recs, d.retry(&d.lanes[i])...)
	}
	j.Record(recs...)
	flush(t, j, j.Checkpoint(d.snapshot()))
	for _, l := range d.lanes {
		if c := l.Counters; !c.Balanced() || c.Offered != all || c.Delivered != all {
			t.Fatalf("lane %d after delivering %d triggers: %+v", l.Lane, all, c)
		}
	}
}
