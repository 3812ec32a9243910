package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/fairlane-dev/fairlane/breaker"
	"github.com/fairlane-dev/fairlane/engine"
	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/server"
	"github.com/fairlane-dev/fairlane/retry"
)

// A process of this program plays the role that roleVar names, set up by setupVar. It prints
// its address, then for each line of its input the CPU time it has used in ns, or where the line says heap
// its live heap in bytes, and stops when its input ends.
const (
	roleVar  = "FAIRLANE_BENCH_ROLE"
	setupVar = "FAIRLANE_BENCH_SETUP"

	roleSink    = "sink"
	roleService = "service"
)

func play(role string) error {
	var s setup
	if err := json.Unmarshal([]byte(os.Getenv(setupVar)), &s); err != nil {
		return err
	}
	stopProfile, err := startProfile(s.Profile, role)
	if err != nil {
		return err
	}
	defer stopProfile()
	switch role {
	case roleSink:
		return playSink()
	case roleService:
		return playService(s)
	}
	return fmt.Errorf("no role %q", role)
}

// answer answers every line of the input until it ends.
func answer() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() == "heap" {
			fmt.Println(int64(heap()))
			continue
		}
		fmt.Println(cpu().Nanoseconds())
	}
}

func playSink() error {
	s, err := startSink(nil)
	if err != nil {
		return err
	}
	defer s.close()
	fmt.Println(s.url())
	answer()
	return nil
}

// setup of a child. What is zero is the service's default.
type setup struct {
	Profile     string
	Dir, Listen string
	Slots       int
	MaxBytes    int64
	Timeout     time.Duration // of a delivery; also shortens the breaker's intervals and the retries
	Unprotected bool
}

const adminKey = "bench-admin-key-0123456789"

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// config of the service. Without protections there is no cap, no breaker, no retry budget
// and no fair order: first come, first served, as in a queue with workers.
func (s setup) config() server.Config {
	c := server.Config{
		Dir: s.Dir, Listen: s.Listen, AdminKey: adminKey, MaxBytes: cmp.Or(s.MaxBytes, 16<<30), StopGrace: 2 * time.Second,
		Engine: engine.Config{Slots: s.Slots}, Allow: loopback,
	}
	laneCap := 16
	if s.Timeout > 0 {
		c.Profile = engine.Profile{
			Timeout:  s.Timeout,
			Schedule: retry.Schedule{Slow: []time.Duration{s.Timeout, 2 * s.Timeout, 4 * s.Timeout}},
			Breaker:  breaker.Config{Open: s.Timeout / 2, OpenMax: 2 * s.Timeout, ProbeExpiry: s.Timeout},
		}
	}
	if s.Unprotected {
		c.Engine.Order, c.Engine.HostLimit = engine.Arrival, -1
		c.Profile.Breaker.Off, c.Profile.NoBudget = true, true
		laneCap = -1
	}
	c.Tiers = map[string]fanout.Tier{"default": {Name: "default", Cap: laneCap, Backlog: 1 << 40, Subscriptions: 1 << 20}}
	return c
}

func playService(s setup) error {
	r, err := server.Start(context.Background(), s.config())
	if err != nil {
		return err
	}
	fmt.Println(r.URL())
	answer()
	return r.Stop(context.Background())
}

// child is a process in a role.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	addr string // what it printed first
}

func (b *bench) spawn(role string, s setup) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s.Profile = b.profile
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), roleVar+"="+role, setupVar+"="+string(text))
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if c.addr, err = c.line(); err != nil {
		return nil, errors.Join(fmt.Errorf("the %s did not start: %w", role, err), c.stop())
	}
	return c, nil
}

func (c *child) line() (string, error) {
	text, err := c.out.ReadString('\n')
	return strings.TrimSpace(text), err
}

// cpu is the CPU time that the child has used.
func (c *child) cpu() (time.Duration, error) {
	ns, err := c.ask("")
	return time.Duration(ns), err
}

// heap is the child's live heap in bytes.
func (c *child) heap() (float64, error) {
	n, err := c.ask("heap")
	return float64(n), err
}

func (c *child) ask(what string) (int64, error) {
	if _, err := io.WriteString(c.in, what+"\n"); err != nil {
		return 0, err
	}
	text, err := c.line()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// stop ends the child, by force after a while.
func (c *child) stop() error {
	c.in.Close()
	force := time.AfterFunc(20*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer force.Stop()
	return c.cmd.Wait()
}

// kill is kill -9. It returns when the process is gone.
func (c *child) kill() error {
	err := c.cmd.Process.Kill()
	_ = c.cmd.Wait() // says that it was killed
	c.in.Close()
	return err
}
