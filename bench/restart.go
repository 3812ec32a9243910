package main

import (
	"fmt"
	"net/http"
	"time"
)

// restart parks deliveries on paused subscriptions, kills the service and measures the time
// from the start of the next process until it is ready. It must have everything again.
func (b *bench) restart() ([]figure, error) {
	svc, err := b.start(setup{})
	if err != nil {
		return nil, err
	}
	defer svc.close()
	const tenants = 100
	urls := make([]string, tenants)
	for i := range urls {
		urls[i] = fmt.Sprintf("http://127.0.0.1:9/%d", i)
	}
	names, err := svc.subscribe("t", urls, map[string]any{"paused": true})
	if err != nil {
		return nil, err
	}
	n := pick(b, b.parked, min(b.parked, 5_000))
	l := atOnce(&tracker{}, svc.host(), n, names...)
	l.run(b.ctx)
	if err := l.err(); err != nil {
		return nil, err
	}
	if err := svc.awaitParked(n); err != nil {
		return nil, err
	}
	return b.restarts(svc, n)
}

func (b *bench) restarts(svc *service, parked int) ([]figure, error) {
	var took, perGB, gb series
	for range pick(b, rounds, 1) {
		if err := svc.kill(); err != nil {
			return nil, err
		}
		bytes, err := size(svc.setup.Dir)
		if err != nil {
			return nil, err
		}
		d, err := svc.again()
		if err != nil {
			return nil, err
		}
		if err := svc.awaitParked(parked); err != nil {
			return nil, err
		}
		b.say("  ready after %v, %d MB", d.Round(time.Millisecond), bytes/1e6)
		took, gb = append(took, d.Seconds()), append(gb, float64(bytes)/1e9)
		perGB = append(perGB, d.Seconds()/(float64(bytes)/1e9))
	}
	return []figure{
		many(fmt.Sprintf("ready with %s parked", short(float64(parked))), took, "s", nil).note("900 bytes each; all parked again after every restart"),
		many("data directory", gb, "GB", nil),
		many("ready, per GB", perGB, "s/GB", nil),
	}, nil
}

// awaitParked returns when the account says that n deliveries are parked.
func (s *service) awaitParked(n int) error {
	var a account
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end) && s.bench.ctx.Err() == nil; sleep(s.bench.ctx, 20*time.Millisecond) {
		var err error
		if a, err = s.account(); err != nil {
			return err
		}
		if a.Parked == uint64(n) {
			return nil
		}
	}
	return fmt.Errorf("%d are to be parked; %s %s says %+v", n, http.MethodGet, "/v1/account", a)
}
