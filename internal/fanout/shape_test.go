package fanout

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/envelope"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// One trigger in one envelope is rendered once, however many subscriptions chose it.
func TestABodyIsRenderedOnceAndShared(t *testing.T) {
	own, err := envelope.New("order/2", "", `{"data":{payload}}`)
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, func(o *Options) { o.Envelopes = map[string]*envelope.Envelope{"own": own} })
	b.tenant("acme")
	subs := map[string]string{}
	for _, name := range []string{"own1", "own2", "own3", "raw1", "ce1", "ce2"} {
		subs[name] = b.subscribe("acme", name, journal.Limits{Rate: "20/s"})
		edit(t, b, subs[name], func(s *journal.Subscription) {
			s.Requests.Envelope = map[byte]string{'o': "own", 'r': "raw", 'c': "cloudevents"}[name[0]]
			s.Requests.Optional = []string{delivery.OptRateLimit, delivery.OptPosition}
		})
	}
	posted := b.post(1, "acme")
	got := map[string]delivery.Request{}
	for name, id := range subs {
		b.until(id, "delivery", delivered(1))
		got[name] = b.to.requests(url(name))[0]
	}
	if string(got["own1"].Payload) != `{"data":{"n":0}}` || got["own1"].Schema != "order/2" || got["raw1"].Schema != "" || string(got["raw1"].Payload) != `{"n":0}` {
		t.Errorf("own %s %s, raw %s", got["own1"].Payload, got["own1"].Schema, got["raw1"].Payload)
	}
	for _, pair := range [][2]string{{"own1", "own2"}, {"own1", "own3"}, {"ce1", "ce2"}} {
		if &got[pair[0]].Payload[0] != &got[pair[1]].Payload[0] {
			t.Errorf("%s and %s do not share their bytes", pair[0], pair[1])
		}
	}
	if !strings.Contains(string(got["ce1"].Payload), `"type":"t.x"`) || got["ce1"].ContentType != "application/cloudevents+json; charset=utf-8" {
		t.Errorf("%s %s", got["ce1"].ContentType, got["ce1"].Payload)
	}
	if ev := got["raw1"].Event; ev == nil || ev.Position != uint64(posted[0].Position) || got["raw1"].Window != time.Second {
		t.Errorf("event %+v, window %v", ev, got["raw1"].Window)
	}
}

// 40 subscriptions of 900 bytes: what is allocated does not grow with the number that share an envelope.
func TestSharedEnvelopesCostTheirBytesOnce(t *testing.T) {
	payload := []byte(`{"x":"` + strings.Repeat("y", 892) + `"}`)
	allocated := func(subscriptions int, share bool) uint64 {
		var r renderings
		const triggers = 500
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range triggers {
			tr := &journal.Trigger{ID: "msg_1", Topic: "t", Position: journal.Position(i + 1), Payload: payload}
			for range subscriptions {
				if share {
					r.get(cloudEvents, tr)
				} else {
					cloudEvents.Render(eventOf(tr), "", tr.Payload)
				}
			}
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / triggers
	}
	one, shared, apart := allocated(1, true), allocated(40, true), allocated(40, false)
	t.Logf("bytes allocated a trigger: 1 subscription %d, 40 that share %d, 40 apart %d", one, shared, apart)
	if shared > one+one/2 || apart < 20*shared {
		t.Errorf("1 subscription %d, 40 that share %d, 40 apart %d", one, shared, apart)
	}
}

func TestRenderingsAreBounded(t *testing.T) {
	var r renderings
	const each = mostRendered/4 + 100
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range each {
				r.get(cloudEvents, &journal.Trigger{ID: "m", Position: journal.Position(i*each + n + 1), Payload: []byte("x")})
			}
		})
	}
	wg.Wait()
	if len(r.made) != mostRendered || len(r.order) != mostRendered || r.bytes != mostRendered {
		t.Errorf("%d made, %d in order, %d bytes", len(r.made), len(r.order), r.bytes)
	}
	const big = renderedBytes / 2
	for i := range 3 {
		r.slot(renderKey{journal.Position(1<<40 + i), cloudEvents}, big) // not rendered: that takes a minute
	}
	if len(r.made) != 2 || r.bytes != 2*big {
		t.Errorf("%d made of %d bytes", len(r.made), r.bytes)
	}
}

// Field case 61. Settings that were stored and can no longer be used hold their own lane, say why, and
// go on once they are mended; nobody else is touched.
func TestUnusableSettingsHoldTheirOwnLane(t *testing.T) {
	b := start(t, nil)
	b.tenant("acme")
	bad := b.subscribe("acme", "bad", journal.Limits{})
	fine := b.subscribe("acme", "fine", journal.Limits{})
	s, _ := b.j.Registry().Subscription(bad)
	s.Requests.Headers = []journal.Attribute{{Name: "X-A", Value: "SECRET\r\nX-Evil: 1"}}
	if _, err := b.PutSubscription(context.Background(), s); err == nil {
		t.Fatal("accepted")
	}
	if _, _, err := b.j.Registry().PutSubscription(context.Background(), s); err != nil { // as an older release may have
		t.Fatal(err)
	}
	b.restart()
	b.post(3, "acme")
	b.until(fine, "delivery", delivered(3))
	b.until(bad, "parked", func(s LaneStatus) bool { return s.Counters.Parked == 3 })
	l := await(t, "why, in the ledger,", func() (string, bool) {
		recs, _, err := b.j.Deliveries(context.Background(), b.index.bySub[bad].id, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		l := fmt.Sprintf("%+v", recs)
		return l, strings.Contains(l, "config: headers.X-A")
	})
	if strings.Contains(l, "SECRET") || len(b.to.requests(url("bad"))) != 0 {
		t.Errorf("sent, or shown: %s", l)
	}
	edit(t, b, bad, func(s *journal.Subscription) { s.Requests.Headers = nil })
	b.until(bad, "delivery", delivered(3))
	for _, r := range b.to.requests(url("bad")) {
		if r.Attempt != 1 {
			t.Errorf("what was never sent counts as attempt %d", r.Attempt)
		}
	}
}
