package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
)

type gateFlags struct{ config, logFormat string }

func newGateCmd() *cobra.Command {
	var f gateFlags
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Admit tenants' requests to an HTTP service: rates, quotas and fair slots",
		Long: `Stand before an HTTP service until SIGINT or SIGTERM: as a reverse proxy, if the file names an
upstream, and at /check for proxies that ask before they forward (nginx auth_request, Traefik
ForwardAuth). SIGHUP reads the file, the keys and the tokens' keys anew; what is wrong in any of
them is reported and nothing is changed. Requests in flight finish within stop_grace at the end.

The admin address serves /metrics, /report and /healthz; keep it from the public.`,
		Example: "  fairlane gate --config gate.yaml\n  fairlane gate check gate.yaml\n  fairlane gate report --admin http://127.0.0.1:9091",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.config == "" {
				return usageError{errors.New("--config FILE is needed")}
			}
			return runGate(cmd.Context(), f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&f.config, "config", "", "policy file")
	cmd.Flags().StringVar(&f.logFormat, "log", "text", "format of the log: text or json")
	cmd.AddCommand(newGateCheckCmd(), newGateReportCmd(), newGateKeyCmd())
	return cmd
}

func runGate(ctx context.Context, f gateFlags, stdout, stderr io.Writer) error {
	log, err := newLogger(f.logFormat, stderr)
	if err != nil {
		return err
	}
	g, err := openGate(ctx, f.config, log)
	if err != nil {
		return err
	}
	limitMemory(os.DirFS("/"), log)
	defer g.close()
	front, err := listen(g.file.Listen, g)
	if err != nil {
		return err
	}
	defer front.server.Close()
	fmt.Fprintf(stdout, "listening on %s\n", front.url())
	var back *listener
	if g.file.Admin != "" {
		if back, err = listen(g.file.Admin, g.admin()); err != nil {
			return err
		}
		defer back.server.Close()
		fmt.Fprintf(stdout, "admin on %s\n", back.url())
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-hangup:
			g.reload(ctx)
		case err := <-front.failed:
			return err
		case <-ctx.Done():
			grace := g.file.StopGrace
			log.Info("stopping", "grace", grace.String())
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
			defer cancel()
			if err := front.server.Shutdown(ending); err != nil {
				return fmt.Errorf("requests were cut after %s", grace)
			}
			return nil
		}
	}
}

// listener is an HTTP server that accepts.
type listener struct {
	server *http.Server
	addr   net.Addr
	failed chan error // written once by the goroutine that accepts
}

func (l *listener) url() string { return "http://" + l.addr.String() }

func listen(addr string, h http.Handler) (*listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &listener{addr: ln.Addr(), failed: make(chan error, 1), server: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}}
	go func() {
		if err := l.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			l.failed <- err
		}
	}()
	return l, nil
}

// admin serves figures.
func (g *gate) admin() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(g.door.Collector(), storeCollector{g})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(g.door.Report()) //nolint:errcheck // the client has gone: nobody is left to tell
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") }) //nolint:errcheck // as above
	return mux
}

// storeCollector exports what the store of quotas in force has counted since it was opened.
type storeCollector struct{ g *gate }

var storeDesc = prometheus.NewDesc("fairlane_gate_store_total", "Decisions that the shared store of quotas was asked for (asked); of them those made without it (away); calls that missed the deadline (late), of them recorded and let through (kept), recorded, refused and given back (returned); calls of which nobody can know whether they were recorded (doubt).", []string{"figure"}, nil)

// Describe sends nothing: without a store there are no figures.
func (c storeCollector) Describe(chan<- *prometheus.Desc) {}

func (c storeCollector) Collect(out chan<- prometheus.Metric) {
	store := c.g.store.Load()
	if store == nil {
		return
	}
	s := store.Stats()
	for figure, n := range map[string]int64{
		"asked": s.Asked, "away": s.Away, "late": s.Late, "kept": s.Kept, "returned": s.Returned, "doubt": s.Doubt,
	} {
		out <- prometheus.MustNewConstMetric(storeDesc, prometheus.CounterValue, float64(n), figure)
	}
}
