package delivery

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// receiverEnv makes the test binary a receiver without latency, in a process
// of its own, so that what it costs is not counted as the sender's.
const receiverEnv = "FAIRLANE_TEST_RECEIVER"

func TestMain(m *testing.M) {
	if os.Getenv(receiverEnv) != "" {
		receive()
		return
	}
	os.Exit(m.Run())
}

// receive prints its address and answers until its standard input ends.
func receive() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr())
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go receiveAll(c)
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}

func receiveAll(c net.Conn) {
	defer c.Close()
	br := bufio.NewReaderSize(c, 16<<10)
	for {
		_, length, err := readHead(br)
		if err != nil {
			return
		}
		if _, err := br.Discard(length); err != nil {
			return
		}
		io.WriteString(c, ok200)
	}
}

func startReceiver(b testing.TB) (addr string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), receiverEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	addr, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(addr)
}

// cpu is what this process has used.
func cpu(b testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// load runs n calls of send from 64 goroutines and returns the CPU time of one.
func load(b testing.TB, n int, send func(attempt int)) time.Duration {
	var next atomic.Int64
	var wg sync.WaitGroup
	before := cpu(b)
	for range 64 {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				send(int(i))
			}
		})
	}
	wg.Wait()
	return (cpu(b) - before) / time.Duration(n)
}

// BenchmarkSenderVsBare compares CPU time of a delivery with that of a bare
// net/http client loop: same bytes, same concurrency, interleaved. The bare
// loop is handed its signature; the sender computes its own.
func BenchmarkSenderVsBare(b *testing.B) {
	url := "http://" + startReceiver(b) + "/hook"
	payload := bytes.Repeat([]byte("x"), 900)
	c := New(Options{Allow: loopback})
	defer c.Close()
	twin := newNetHTTP(Options{Allow: loopback})
	defer twin.Close()
	with := func(s Sender) func(int) {
		return func(i int) {
			r := post(url)
			r.Payload, r.ID, r.Limit, r.Remaining = payload, "msg_"+strconv.Itoa(i), 100, 7
			if o := s.Send(context.Background(), r); o.Status != 200 {
				b.Errorf("%+v", o)
			}
		}
	}
	bare := bareLoop(b, url, payload)
	const rounds = 5
	n := max(b.N/rounds, 64)
	var sum [3]time.Duration
	for range rounds {
		sum[0] += load(b, n, with(c))
		sum[1] += load(b, n, bare)
		sum[2] += load(b, n, with(twin))
	}
	b.ReportMetric(float64(sum[0].Nanoseconds())/rounds/1e3, "sender-cpu-us")
	b.ReportMetric(float64(sum[1].Nanoseconds())/rounds/1e3, "bare-cpu-us")
	b.ReportMetric(float64(sum[2].Nanoseconds())/rounds/1e3, "twin-cpu-us")
	b.ReportMetric(float64(sum[1])/float64(sum[0]), "x-bare")
}

func bareLoop(b *testing.B, url string, payload []byte) func(int) {
	client := &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
		Timeout:   defaultTimeout,
	}
	b.Cleanup(client.CloseIdleConnections)
	now := time.Now().Unix()
	signature := string(AppendSignature(nil, "msg_1", now, payload, [][]byte{secret}))
	return func(i int) {
		req, err := http.NewRequest("POST", url, bytes.NewReader(payload))
		if err != nil {
			b.Error(err)
			return
		}
		id := "msg_" + strconv.Itoa(i)
		req.Header = http.Header{
			"User-Agent":          {"Fairlane/dev"},
			"Accept-Encoding":     {"identity"},
			"Content-Type":        {"application/json"},
			"webhook-id":          {id},
			"webhook-timestamp":   {strconv.FormatInt(now, 10)},
			"webhook-signature":   {signature},
			"Idempotency-Key":     {`"` + id + `"`},
			"X-Attempt":           {"1"},
			"RateLimit-Limit":     {"100"},
			"RateLimit-Remaining": {"7"},
		}
		res, err := client.Do(req)
		if err != nil {
			b.Error(err)
			return
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

// BenchmarkSend shows that what a delivery allocates does not depend on its payload.
func BenchmarkSend(b *testing.B) {
	url := "http://" + startReceiver(b) + "/hook"
	for _, size := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			c := New(Options{Allow: loopback})
			defer c.Close()
			r := post(url)
			r.Payload = make([]byte, size)
			b.ReportAllocs()
			for b.Loop() {
				if o := c.Send(b.Context(), r); o.Status != 200 {
					b.Fatalf("%+v", o)
				}
			}
		})
	}
}
