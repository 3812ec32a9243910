package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/redisquota"
)

const (
	redisCallers = 64
	redisTenants = 1_000
)

// redis compares decisions a second, and what they cost, on one server.
func (b *bench) redis() ([]figure, error) {
	server, err := b.startRedis()
	if err != nil {
		return nil, err
	}
	defer server.stop()
	ours, err := redisquota.Open(redisquota.Config{URL: "redis://" + server.addr, Deadline: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	client := redis.NewClient(&redis.Options{Addr: server.addr, PoolSize: redisCallers})
	defer func() { _ = client.Close() }()
	theirs := redis_rate.NewLimiter(client)
	n := pick(b, 50_000, 10_000)
	var mine, its [4]series // CPU per decision, round by round
	side := func(i int, decide func(tenant string) error) func() (float64, error) {
		return func() (float64, error) { return server.rate(n, decide, &mine[i], &its[i]) }
	}
	s, err := b.interleave(
		side(0, takeShared(b.ctx, ours, 1)), side(1, allowEach(b.ctx, theirs, 1)),
		side(2, takeShared(b.ctx, ours, 3)), side(3, allowEach(b.ctx, theirs, 3)))
	if err != nil {
		return nil, err
	}
	figures := []figure{
		many("redisquota, one limit", s[0], "/s", nil),
		many("redis_rate, one limit", s[1], "/s", nil),
		many("ratio, one limit", s[0].over(s[1]), "x", nil),
		many("redisquota, three limits", s[2], "/s", nil),
		many("redis_rate, three limits", s[3], "/s", nil),
		many("ratio, three limits", s[2].over(s[3]), "x", nil),
	}
	for i, name := range []string{"redisquota, one limit", "redis_rate, one limit", "redisquota, three limits", "redis_rate, three limits"} {
		figures = append(figures, many("CPU of the caller, "+name, mine[i], "us", nil), many("CPU of the server, "+name, its[i], "us", nil))
	}
	return figures, nil
}

// takeShared returns one decision of so many limits in one script.
func takeShared(ctx context.Context, s *redisquota.Store, limits int) func(tenant string) error {
	return func(tenant string) error {
		key := []string{tenant}
		checks := []admit.Check{
			{Policy: "second", Key: key, Cost: 1, Spec: admit.Spec{Algorithm: admit.TokenBucket, Limit: 10_000, Window: time.Second, Burst: 10_000}},
			{Policy: "day", Key: key, Cost: 1, Spec: admit.Spec{Algorithm: admit.FixedWindow, Limit: 100_000_000, Window: admit.Day}},
			{Policy: "month", Key: key, Cost: 1, Spec: admit.Spec{Algorithm: admit.FixedWindow, Limit: 1_000_000_000, Window: admit.Month}},
		}
		a, err := s.Take(ctx, checks[:limits])
		if err == nil && a.Away {
			err = errors.New("redis did not answer within 5 s")
		}
		return err
	}
}

// allowEach returns as many decisions of one limit, one after the other.
func allowEach(ctx context.Context, l *redis_rate.Limiter, limits int) func(tenant string) error {
	names := []string{"second:", "day:", "month:"}[:limits]
	rates := []redis_rate.Limit{
		{Rate: 10_000, Period: time.Second, Burst: 10_000},
		{Rate: 100_000_000, Period: admit.Day, Burst: 100_000_000},
		{Rate: 1_000_000_000, Period: admit.Month, Burst: 1_000_000_000},
	}
	return func(tenant string) error {
		for i, name := range names {
			r, err := l.Allow(ctx, name+tenant, rates[i])
			if err != nil || r.Allowed == 0 {
				return err
			}
		}
		return nil
	}
}

type redisServer struct {
	addr string
	cmd  *exec.Cmd
}

// startRedis starts a server with an append-only file in the scratch directory.
func (b *bench) startRedis() (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("redis-server is missing, so there is nothing to measure; Debian's package redis-server has it (scripts/tools installs it)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	dir := filepath.Join(b.dir, "redis")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	s := &redisServer{addr: addr, cmd: exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction")}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return s, nil
		}
		if time.Now().After(end) {
			s.stop()
			return nil, errors.New("redis-server did not listen within 10 s")
		}
	}
}

func (s *redisServer) stop() {
	_ = s.cmd.Process.Kill() // its data goes with the scratch directory
	_ = s.cmd.Wait()
}

// rate returns decisions a second of n by all callers, and appends the CPU time of each in us,
// here and at the server.
func (s *redisServer) rate(n int, decide func(tenant string) error, mine, its *series) (float64, error) {
	if err := decide("warm"); err != nil {
		return 0, err
	}
	var next atomic.Int64
	errs := make([]error, redisCallers)
	served, err := s.cpu()
	if err != nil {
		return 0, err
	}
	used, begin := cpu(), time.Now()
	var wg sync.WaitGroup
	for i := range redisCallers {
		wg.Go(func() {
			for k := next.Add(1); k <= int64(n) && errs[i] == nil; k = next.Add(1) {
				errs[i] = decide("tenant-" + strconv.FormatInt(k*7919%redisTenants, 10))
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	*mine = append(*mine, (cpu()-used).Seconds()*1e6/float64(n))
	after, err := s.cpu()
	*its = append(*its, (after-served).Seconds()*1e6/float64(n))
	return float64(n) / took.Seconds(), errors.Join(err, errors.Join(errs...))
}

// cpu is the CPU time that the server has used, by /proc: clock ticks of 10 ms.
func (s *redisServer) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // not on this system: the figure is 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, errors.New("/proc/pid/stat is too short")
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2)
}
