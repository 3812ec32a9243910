package fanout

import (
	"sync"

	"github.com/fairlane-dev/fairlane/internal/envelope"
	"github.com/fairlane-dev/fairlane/internal/journal"
)

// Bounds of what is kept rendered.
const (
	mostRendered  = 4096
	renderedBytes = 64 << 20
)

// renderings keeps the latest bodies in envelopes: one trigger in one envelope is rendered once, and
// shared by the subscriptions that chose it. The zero value is ready. Safe for concurrent use.
type renderings struct {
	mu    sync.Mutex
	made  map[renderKey]*rendering
	order []renderKey // oldest first
	bytes int         // of the payloads behind them
}

type renderKey struct {
	trigger  journal.Position
	envelope *envelope.Envelope
}

// rendering is made by the first who needs it; the others wait for it. Nobody changes it.
type rendering struct {
	once        sync.Once
	size        int
	body        []byte
	contentType string
}

func (r *renderings) get(e *envelope.Envelope, t *journal.Trigger) *rendering {
	m := r.slot(renderKey{t.Position, e}, len(t.Payload))
	m.once.Do(func() { m.body, m.contentType = e.Render(eventOf(t), t.ContentType, t.Payload) })
	return m
}

func (r *renderings) slot(k renderKey, size int) *rendering {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.made[k]; m != nil {
		return m
	}
	if r.made == nil {
		r.made = map[renderKey]*rendering{}
	}
	m := &rendering{size: size}
	r.made[k] = m
	r.order = append(r.order, k)
	r.bytes += size
	for len(r.order) > mostRendered || r.bytes > renderedBytes && len(r.order) > 1 {
		oldest := r.order[0]
		r.bytes -= r.made[oldest].size
		delete(r.made, oldest)
		r.order = r.order[1:]
	}
	return m
}
