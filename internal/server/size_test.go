package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// raw sends octets on a connection of their own and reads one answer; then the connection.
func (s *service) raw(send string) (*http.Response, net.Conn) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, send); err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, c
}

func head(more string) string {
	return "POST /v1/triggers/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + testKey + "\r\nFairlane-Tenant: acme\r\n" + more + "\r\n"
}

// Field case 6.
func TestTheLimitHoldsHoweverTheBodyIsFramed(t *testing.T) {
	const limit = 10_000
	s := start(t, "", func(c *Config) { c.MaxBody = limit })
	s.tenant("acme")
	position := s.Journal().Status().LastPosition
	stored := func(want bool, what string) {
		t.Helper()
		now := s.Journal().Status().LastPosition
		if (now != position) != want {
			t.Errorf("%s: stored is %v", what, !want)
		}
		position = now
	}
	exact, over := bytes.Repeat([]byte{'x'}, limit), bytes.Repeat([]byte{'x'}, limit+1)
	chunked := func(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b), strings.NewReader("")) }

	s.must(413, s.do("POST", "/v1/triggers/a", chunked(over), okTenant))
	stored(false, "one byte too many, chunked")
	s.must(413, s.do("POST", "/v1/triggers/a", bytes.NewReader(over), okTenant))
	stored(false, "one byte too many")
	s.must(202, s.do("POST", "/v1/triggers/a", chunked(exact), okTenant))
	stored(true, "the limit, chunked")
	s.must(202, s.do("POST", "/v1/triggers/a", bytes.NewReader(exact), okTenant))
	stored(true, "the limit")

	resp, _ := s.raw(head("Content-Length: 10001\r\nExpect: 100-continue\r\n"))
	if resp.StatusCode != 413 {
		t.Errorf("a client that expects 100-continue with too long a body got %d first", resp.StatusCode)
	}
	resp, _ = s.raw(head("Content-Length: 2147483647\r\n"))
	if resp.StatusCode != 413 {
		t.Errorf("a lying length got %d", resp.StatusCode)
	}
	stored(false, "refused by length")
}

// Field case 6.
func TestACutBodyIsNotStored(t *testing.T) {
	s := start(t, "", nil)
	s.tenant("acme")
	position := s.Journal().Status().LastPosition
	for _, framing := range []string{"Content-Length: 1000\r\n\r\n" + strings.Repeat("x", 500), "Transfer-Encoding: chunked\r\n\r\n3e8\r\n" + strings.Repeat("x", 500)} {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, strings.TrimSuffix(head(""), "\r\n")+framing)
		c.(*net.TCPConn).CloseWrite()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && resp.StatusCode != 400 {
			t.Errorf("got %d", resp.StatusCode)
		}
		c.Close()
	}
	if now := s.Journal().Status().LastPosition; now != position {
		t.Error("half a body was stored")
	}
}

// Field case 6.
func TestMemoryGrowsWithWhatArrives(t *testing.T) {
	const declared = 6 << 20
	r, w := io.Pipe()
	req, _ := http.NewRequest("POST", "/", r)
	req.ContentLength = declared
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read := make(chan error, 1)
	go func() {
		_, err := readBody(nothing{}, req, declared, defaultPace)
		read <- err
	}()
	w.Write(make([]byte, 100))
	w.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-read; err == nil {
		t.Error("half a body was accepted")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes allocated for 100 received", n)
	}
}

// nothing is a ResponseWriter without deadlines.
type nothing struct{}

func (nothing) Header() http.Header         { return http.Header{} }
func (nothing) Write(b []byte) (int, error) { return len(b), nil }
func (nothing) WriteHeader(int)             {}

func TestBodiesOfEverySizeAreReadWhole(t *testing.T) {
	const limit = 3*firstBuffer + 7
	for _, n := range []int{0, 1, 2, firstBuffer - 1, firstBuffer, firstBuffer + 1, 2 * firstBuffer, limit - 1, limit, limit + 1, 2 * limit} {
		for _, declared := range []bool{true, false} {
			want := bytes.Repeat([]byte{byte(n)}, n)
			req, _ := http.NewRequest("POST", "/", io.MultiReader(bytes.NewReader(want)))
			if req.ContentLength = -1; declared {
				req.ContentLength = int64(n)
			}
			got, err := readBody(nothing{}, req, limit, defaultPace)
			if (err != nil) != (n > limit) {
				t.Fatalf("%d bytes: %v", n, err)
			}
			if err == nil && !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, declared %v: got %d", n, declared, len(got))
			}
			if err == nil && declared && cap(got) != n {
				t.Fatalf("%d bytes: %s", n, fmt.Sprint("capacity ", cap(got)))
			}
		}
	}
}
