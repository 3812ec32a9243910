package server

import (
	"regexp"
	"strings"
	"sync"
	"testing"
)

// receipt is what ingest answers.
type receipt struct {
	ID       string
	Position uint64
}

func receiptOf(t *testing.T, a answer) (receipt, bool) {
	t.Helper()
	var r receipt
	a.into(t, &r)
	return r, a.header.Get("Fairlane-Repeat") == "true"
}

// Field case 4.
func TestAKeyIsOneRequest(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	s.tenant("acme")
	s.tenant("beta")
	s.subscribe("acme", url, "")
	first, repeat := receiptOf(t, s.must(202, s.post("acme", "A", "Idempotency-Key: abc", "Content-Type: text/plain")))
	if repeat {
		t.Error("the first is called a repeat")
	}
	for _, key := range []string{`abc`, `"abc"`} {
		again, repeat := receiptOf(t, s.must(202, s.post("acme", "A", "Idempotency-Key: "+key, "Content-Type: text/plain")))
		if again != first || !repeat {
			t.Errorf("key %s: got %+v, repeat %v, want %+v", key, again, repeat, first)
		}
	}
	for what, a := range map[string]answer{
		"body":         s.post("acme", "B", "Idempotency-Key: abc", "Content-Type: text/plain"),
		"content type": s.post("acme", "A", "Idempotency-Key: abc", "Content-Type: text/html"),
		"audience":     s.post("beta", "A", "Idempotency-Key: abc", "Content-Type: text/plain"),
		"broadcast":    s.post("*", "A", "Idempotency-Key: abc", "Content-Type: text/plain"),
		"topic":        s.do("POST", "/v1/triggers/a.c", strings.NewReader("A"), "Idempotency-Key: abc", "Content-Type: text/plain", "Fairlane-Tenant: acme"),
	} {
		if p := s.must(422, a).problem(t); p.Type != "urn:fairlane:problem:idempotency-key-conflict" || p.Field != "Idempotency-Key" {
			t.Errorf("another %s: %s", what, a.body)
		}
	}
	next(t, got)
	s.must(202, s.post("acme", "last", ""))
	if r := next(t, got); string(r.body) != "last" {
		t.Errorf("a repeat was delivered: %q", r.body)
	}
}

// Field case 4.
func TestOneKeyAtOnceIsStoredOnce(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	s.tenant("acme")
	s.subscribe("acme", url, "")
	var mu sync.Mutex
	var wg sync.WaitGroup
	ids, firsts := map[string]int{}, 0
	for range 24 {
		wg.Go(func() {
			r, repeat := receiptOf(t, s.post("acme", "A", "Idempotency-Key: k"))
			mu.Lock()
			defer mu.Unlock()
			ids[r.ID]++
			if !repeat {
				firsts++
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 || firsts != 1 {
		t.Errorf("ids %v, %d firsts", ids, firsts)
	}
	next(t, got)
	until(t, "one offered and delivered", func() bool { a := s.account(); return a.Offered == 1 && a.Delivered == 1 })
}

// Field case 58.
func TestTheIDIsOursWhateverTheKeySays(t *testing.T) {
	s := start(t, "", nil)
	url, got := endpoint(t, 200)
	s.tenant("acme")
	s.subscribe("acme", url, "")
	form := regexp.MustCompile(`\A[A-Za-z0-9_-]{1,256}\z`)
	seen := map[string]bool{}
	for _, key := range []string{"a.1674087231.{}", "evt_1", "a/b", strings.Repeat("k", 255), ""} {
		r, _ := receiptOf(t, s.must(202, s.post("acme", "A", "Idempotency-Key: "+key)))
		d := next(t, got)
		if !form.MatchString(r.ID) || d.header.Get("Webhook-Id") != r.ID || seen[r.ID] {
			t.Errorf("key %q: id %q, delivered as %q", key, r.ID, d.header.Get("Webhook-Id"))
		}
		seen[r.ID] = true
	}
}
