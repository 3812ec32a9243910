package torture

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// redis is a redis-server that keeps what it acknowledged over a kill -9.
type redis struct {
	t    *testing.T
	addr string
	args []string
	cmd  *exec.Cmd
}

func startRedis(t *testing.T) *redis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("SKIPPED: redis-server is missing; scripts/tools installs it")
	}
	r := &redis{t: t, addr: freeAddr(t)}
	host, port, _ := net.SplitHostPort(r.addr)
	r.args = []string{
		"--bind", host, "--port", port, "--dir", t.TempDir(), "--save", "", "--maxmemory-policy", "noeviction",
		"--appendonly", "yes", "--appendfsync", "always",
	}
	r.start()
	t.Cleanup(func() { r.kill() })
	return r
}

// start returns when the server answers.
func (r *redis) start() {
	r.t.Helper()
	r.cmd = exec.Command("redis-server", r.args...)
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	if !poll(startLimit, r.answers) {
		r.t.Fatal("redis-server does not answer")
	}
}

func (r *redis) answers() bool {
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(startLimit))
	_, err = io.WriteString(c, "PING\r\n")
	line, _ := bufio.NewReader(c).ReadString('\n')
	return err == nil && line == "+PONG\r\n" // or it loads its file
}

func (r *redis) kill() kill {
	k := kill{from: now()}
	if r.cmd != nil {
		r.cmd.Process.Kill()
		r.cmd.Wait()
		r.cmd = nil
	}
	k.to = now()
	return k
}

// gateProcess is `fairlane gate`.
type gateProcess struct {
	t            *testing.T
	front, admin string
	log          bytes.Buffer // to be read when the process has ended
}

func startGate(t *testing.T, config, redis string) *gateProcess {
	t.Helper()
	g := &gateProcess{t: t}
	cmd := exec.Command(binary, "gate", "--config", config)
	cmd.Env = append(os.Environ(), "GATE_REDIS=redis://"+redis)
	cmd.Stderr = &g.log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, to := range []*string{&g.front, &g.admin} {
		if lines.Scan() {
			_, *to, _ = strings.Cut(lines.Text(), " on ")
		}
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the gate ended with %v; its log:\n%s", err, g.log.String())
		}
	})
	if g.admin == "" {
		t.Fatal("the gate does not start")
	}
	return g
}

// figures are the samples of the gate's metrics that are whole numbers.
func (g *gateProcess) figures() map[string]int64 {
	g.t.Helper()
	resp, err := http.Get(g.admin + "/metrics")
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	all := map[string]int64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = int64(n)
		}
	}
	return all
}
