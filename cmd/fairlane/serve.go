package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlane-dev/fairlane/internal/config"
	"github.com/fairlane-dev/fairlane/internal/server"
)

// adminKeyVar holds the admin key for the service and for the commands that call it.
const adminKeyVar = "FAIRLANE_ADMIN_KEY"

type serveFlags struct {
	config, listen, data, logFormat string
	dev                             bool
}

func newServeCmd() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the service",
		Long: `Run the service until SIGINT or SIGTERM. It then takes no more triggers, lets requests in flight
finish within the grace, parks the rest, writes a checkpoint and closes the log. A second
signal ends it at once; nothing acknowledged is lost by that.

SIGHUP reads the configuration file again. All of it is checked before any is put into force; what
needs a restart is named in the log. Certificates are read again by themselves when they change.

An admin key may come from FAIRLANE_ADMIN_KEY or, if that is not set, from server.admin_key. Keys in the
data directory (fairlane key) need neither.

--dev is for a first look: it listens on the loopback alone, lets endpoints be there, keeps
data in ./fairlane-data, and makes an admin key if none is set.`,
		Example: "  fairlane serve --config fairlane.yaml\n  fairlane serve --dev",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&f.config, "config", "", "configuration file")
	cmd.Flags().StringVar(&f.listen, "listen", "", "address of the API, instead of the file's")
	cmd.Flags().StringVar(&f.data, "data", "", "data directory, instead of the file's")
	cmd.Flags().StringVar(&f.logFormat, "log", "text", "format of the log: text or json")
	cmd.Flags().BoolVar(&f.dev, "dev", false, "loopback only, endpoints on the loopback allowed, an admin key is made and printed")
	return cmd
}

func serve(ctx context.Context, f serveFlags, stdout, stderr io.Writer) error {
	log, err := newLogger(f.logFormat, stderr)
	if err != nil {
		return err
	}
	c, made, err := serveConfig(f, log)
	if err != nil {
		return err
	}
	limitMemory(os.DirFS("/"), log)
	if c.Spans, err = server.SpansFromEnv(ctx, os.Getenv); err != nil {
		return err
	}
	running, err := server.Start(ctx, c)
	if errors.Is(err, server.ErrNoAdmin) {
		return fmt.Errorf("%w; set %s or server.admin_key, or make one: fairlane key create ops --admin --data %s", err, adminKeyVar, c.Dir)
	}
	if err != nil {
		return withRepair(err, c.Dir)
	}
	if made {
		fmt.Fprintf(stdout, "export %s=%s\n", adminKeyVar, c.AdminKey)
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	fmt.Fprintf(stdout, "listening on %s, data in %s\n", running.URL(), c.Dir)
	for {
		select {
		case <-hup:
			reload(running, f, log)
		case <-ctx.Done():
			log.Info("stopping", "grace", c.StopGrace.String())
			return running.Stop(context.WithoutCancel(ctx))
		case err := <-running.Failed():
			return errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
		}
	}
}

// reload puts the file as it is now into force, as far as that goes without a restart. A terminal
// that closes sends the same signal: without a file it does nothing.
func reload(running *server.Running, f serveFlags, log *slog.Logger) {
	if f.config == "" {
		return
	}
	c, _, err := serveConfig(f, log)
	if err != nil {
		log.Error("the configuration was not reloaded: nothing was changed", "error", err)
		return
	}
	restart, err := running.Reload(c)
	if err != nil {
		log.Error("the configuration was not reloaded", "error", err)
		return
	}
	log.Info("the configuration was reloaded")
	if len(restart) > 0 {
		log.Warn("changed in the file, and in force only after a restart", "settings", strings.Join(restart, ", "))
	}
}

func newLogger(format string, w io.Writer) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(server.Fold(slog.NewTextHandler(w, nil))), nil
	case "json":
		return slog.New(server.Fold(slog.NewJSONHandler(w, nil))), nil
	}
	return nil, usageError{fmt.Errorf("--log must be text or json, not %q", format)}
}

// serveConfig joins file, flags and environment; made says that the admin key is new.
func serveConfig(f serveFlags, log *slog.Logger) (c server.Config, made bool, err error) {
	file := config.Default()
	if f.config != "" {
		if file, err = config.Load(f.config, nil); err != nil {
			return c, false, err
		}
	}
	c = server.FromFile(file)
	c.Version, c.Logger = version, log
	c.AdminKey = cmp.Or(os.Getenv(adminKeyVar), c.AdminKey)
	if f.dev {
		made = c.AdminKey == ""
		dev(&c, f.config == "")
	}
	c.Listen, c.Dir = cmp.Or(f.listen, c.Listen), cmp.Or(f.data, c.Dir)
	switch {
	case c.AdminKey != "" && len(c.AdminKey) < minAdminKey:
		return c, false, fmt.Errorf("the admin key must have at least %d characters", minAdminKey)
	case f.dev && !loopback(c.Listen):
		return c, false, usageError{fmt.Errorf("--dev listens on the loopback only, not on %q", c.Listen)}
	}
	return c, made, nil
}

const minAdminKey = 16

// dev changes what --dev changes; alone says that no file was given.
func dev(c *server.Config, alone bool) {
	if alone {
		c.Listen, c.Dir, c.Ballast = "127.0.0.1:8080", "./fairlane-data", 0
	}
	c.Allow = append(c.Allow, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
	if c.AdminKey == "" {
		c.AdminKey = rand.Text()
	}
}

// loopback reports whether addr, "host:port", can be reached from this machine alone.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
