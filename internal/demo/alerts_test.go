package demo

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/internal/promtest"
)

// filmed is the real service with somebody who scrapes it.
type filmed struct {
	service
	film *promtest.Film
	quit chan struct{}
	done chan struct{}
}

// filmFaster is how much faster than the film time runs in the demo, whose breakers and schedules are that small.
const filmFaster = 6

const filmStep = 500 * time.Millisecond

func (f *filmed) run(t *testing.T) {
	defer close(f.done)
	tick := time.NewTicker(filmStep)
	defer tick.Stop()
	begun, frames := time.Now(), 0
	for {
		select {
		case <-f.quit:
			return
		case <-tick.C:
			shot := scrape(t, f.service)
			for ; shot != "" && time.Duration(frames)*filmStep < time.Since(begun); frames++ { // a slow scrape stands for its whole time
				f.film.Add(shot)
			}
		}
	}
}

func scrape(t *testing.T, s service) string {
	req, err := http.NewRequest("GET", s.url()+"/metrics", nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	req.Header.Set("Authorization", "Bearer "+s.key())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "" // it stops
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

func (f *filmed) stopSends() {
	f.end()
	f.service.stopSends()
}

func (f *filmed) stop(ctx context.Context) error {
	f.end()
	return f.service.stop(ctx)
}

func (f *filmed) end() {
	select {
	case <-f.quit:
	default:
		close(f.quit)
	}
	<-f.done
}

// With protections on, neither the noisy tenant nor the dead ones page anybody; with protections off, the same
// load does.
func TestTheDemosTenantsPageNobodyWhileProtected(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	if _, err := promtest.Promtool(); err != nil {
		t.Skip(err)
	}
	o, _, _ := short(t)
	o.Load, o.Tail = 12*time.Second, 500*time.Millisecond
	d := newDemo(o, nil, tenants)
	for _, p := range phases(tenants)[1:] {
		for try := 1; ; try++ {
			pages, late := filmPhase(t, d, p)
			unfair := slices.Contains(pages, "FairlaneUnfair") && slices.Contains(pages, "FairlaneTenantShortChanged")
			if p.protected && len(pages) == 0 || !p.protected && unfair {
				break
			}
			if !late {
				t.Fatalf("%s: %q page", p.name, pages)
			}
			if try == 3 {
				t.Skipf("SKIPPED: this machine was three times too busy to post the load: %s: %q page", p.name, pages)
			}
		}
	}
}

// filmPhase returns who pages in a phase, and whether over a tenth of its posts started late, so that it was not
// the load that it should be.
func filmPhase(t *testing.T, d *demo, p phase) (pages []string, late bool) {
	t.Helper()
	f := &filmed{film: &promtest.Film{Step: filmFaster * filmStep}, quit: make(chan struct{}), done: make(chan struct{})}
	d.launch = func(ctx context.Context, dir string, s settings) (service, error) {
		real, err := launchServer(ctx, dir, s)
		if err != nil {
			close(f.done)
			return nil, err
		}
		f.service = real
		go f.run(t)
		return f, nil
	}
	d.dir = t.TempDir()
	m, err := d.runPhase(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	pages, err = f.film.Fired(rules(t), "page")
	if err != nil {
		t.Fatal(err)
	}
	posts := m.posting.failed
	for _, n := range m.posting.accepted {
		posts += n
	}
	return pages, 10*m.posting.late > posts
}

func rules(t *testing.T) string {
	root, err := promtest.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "deploy/prometheus/alerts.yaml")
}
