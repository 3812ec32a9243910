package demo

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

func TestZZ(t *testing.T) {
	if os.Getenv("ZZ") == "" {
		t.Skip()
	}
	d := newDemo(Options{Progress: os.Stderr}, func(ctx context.Context, dir string, s settings) (service, error) {
		svc, err := launchServer(ctx, dir, s)
		if err == nil {
			go func() {
				defer func() { recover() }()
				for range 16 {
					time.Sleep(time.Second)
					r := svc.(*running)
					for _, v := range r.Fanout().Tenants() {
						fmt.Fprintf(os.Stderr, "%s %.2f d=%.1f sh=%.1f n=%d f=%d | ", v.TenantID[:4], v.Served, v.Demand, v.Share, v.Nominal, v.InFlight)
					}
					fmt.Fprintln(os.Stderr)
				}
			}()
		}
		return svc, err
	}, tenants)
	d.dir = t.TempDir()
	m, err := d.runPhase(t.Context(), phases(tenants)[1])
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range m.served {
		fmt.Println(tenants[i].name, s, s.sum/float64(s.n), m.received[i].Tally)
	}
	fmt.Println(fairness(m.served))
}
