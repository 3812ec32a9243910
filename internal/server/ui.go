package server

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"

	"github.com/fairlane-dev/fairlane/internal/ui"
)

// linkProducer is the immutable id of those who come by a signed link.
const linkProducer = "link"

// linkedKey marks a request of this process with the tenant whose signed link it came by. No header can.
type linkedKey struct{}

// newPages makes the pages. They ask the API as any client does, in this process.
func (s *Server) newPages(o Options) *ui.UI {
	return ui.New(ui.Options{
		API:      s.mux,
		Platform: s.fanout,
		Identify: s.identify,
		As: func(r *http.Request, tenant string) *http.Request {
			return r.WithContext(context.WithValue(r.Context(), linkedKey{}, tenant))
		},
		Links:   s.links,
		LinkKey: o.LinkKey,
		Embed:   o.Frames,
	})
}

// links is the generation of a tenant's signed links.
func (s *Server) links(tenant string) uint32 {
	t, _ := s.registry.Tenant(tenant)
	return t.Links
}

// identify says whose pages a key opens: those of an administrator or of a tenant.
func (s *Server) identify(key string) (ui.Who, bool) {
	c := s.holder(sha256.Sum256([]byte(key)))
	if c == nil || c.role != admin && c.role != tenant {
		return ui.Who{}, false
	}
	return ui.Who{Tenant: c.of}, true
}

// forPages reports whether a page is asked for. A browser that opens the bare address means the first one.
func forPages(r *http.Request) bool {
	if r.URL.Path == "/" {
		return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
	}
	return r.URL.Path == "/ui" || strings.HasPrefix(r.URL.Path, "/ui/")
}
