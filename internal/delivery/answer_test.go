package delivery

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// agrees holds the parser to what keeps deliveries apart: where it would use the
// connection again, net/http must have read the same status and body, and see
// the next answer begin at the same octet.
func agrees(t interface{ Fatalf(string, ...any) }, text []byte) {
	br := bufio.NewReaderSize(bytes.NewReader(text), 4<<10)
	var a answer
	if err := a.read(br); err != nil {
		if _, ok := err.(*errStage); !ok {
			t.Fatalf("%q: error without a stage: %v", text, err)
		}
		return
	}
	snippet, complete := a.body(br, func() {})
	if a.status < 0 || a.status > 999 || len(snippet) > maxSnippet {
		t.Fatalf("%q: status %d, snippet of %d", text, a.status, len(snippet))
	}
	if a.spoilt || !complete {
		return
	}
	rest, _ := io.ReadAll(br)
	status, body, left, err := byNetHTTP(text)
	switch {
	case err != nil:
		t.Fatalf("%q: kept, but net/http: %v", text, err)
	case status != a.status || !bytes.Equal(body[:min(len(body), maxSnippet)], snippet):
		t.Fatalf("%q: status %d, snippet %q; by net/http %d, %q", text, a.status, snippet, status, body)
	case !bytes.Equal(rest, left):
		t.Fatalf("%q: next begins with %q; by net/http with %q", text, rest, left)
	}
}

func byNetHTTP(text []byte) (status int, body, rest []byte, err error) {
	br := bufio.NewReader(bytes.NewReader(text))
	for {
		res, err := http.ReadResponse(br, &http.Request{Method: "POST"})
		if err != nil {
			return 0, nil, nil, err
		}
		if res.StatusCode >= 100 && res.StatusCode < 200 && res.StatusCode != 101 {
			continue
		}
		if body, err = io.ReadAll(res.Body); err != nil {
			return 0, nil, nil, err
		}
		rest, _ = io.ReadAll(br)
		return res.StatusCode, body, rest, nil
	}
}

var answerParts = []string{
	"HTTP/1.1 200 OK\r\n", "HTTP/1.1 204\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 304 \r\n", "HTTP/1.0 200 OK\r\n", "HTTP/1.1 500\n",
	"Content-Length: 2\r\n", "content-length:3\r\n", "Content-Length: 2\n", "Content-Length : 2\r\n", "Content-Length: +2\r\n", "Content-Length: 0x2\r\n",
	"Content-Length: \r\n", "Transfer-Encoding: chunked\r\n", "transfer-encoding: CHUNKED\r\n", "Transfer-Encoding: identity\r\n",
	"Connection: close\r\n", "Connection: keep-alive\r\n", "X: y\r\n", " folded\r\n", ": empty\r\n", "\r\n", "\n", "\r",
	"ok", "2\r\nok\r\n", "2;ext=1\r\nok\r\n", "0\r\n", "0\r\n\r\n", "Trailer: x\r\n", "\x00", "HTTP/1.1 ",
}

func TestConnectionIsKeptOnlyWhereNetHTTPAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom(answerParts), 0, 12).Draw(t, "parts")
		lead := rapid.SampledFrom(answerParts[:6]).Draw(t, "lead")
		agrees(t, []byte(lead+strings.Join(parts, "")))
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(ok200))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nT: x\r\n\r\nHTTP/1.1"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nokok"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 5000) + "\r\nContent-Length: 0\r\n\r\n"))
	f.Fuzz(agreesFuzz)
}

func agreesFuzz(t *testing.T, text []byte) { agrees(t, text) }

func TestStatusLineIsReadStrictly(t *testing.T) {
	for line, status := range map[string]int{
		"HTTP/1.1 200 OK": 200, "HTTP/1.1 200": 200, "HTTP/1.1 200 ": 200, "HTTP/1.0 503 x": 503, "HTTP/1.9 200 OK": 200, "HTTP/1.1 000 x": 0,
		"HTTP/1.1  200 OK": -1, "HTTP/1.1 200OK": -1, "HTTP/1.1 20 OK": -1, "HTTP/1.1 2000": -1, "HTTP/2.0 200 OK": -1, "http/1.1 200 OK": -1,
		"HTTP/1.1\t200 OK": -1, "HTTP/11 200 OK": -1, "HTTP/1.10 200 OK": -1, " HTTP/1.1 200 OK": -1, "": -1, "HTTP/1.1 ": -1, "HTTP/1.1 -20 x": -1,
	} {
		var a answer
		err := a.read(bufio.NewReader(strings.NewReader(line + "\r\n\r\n")))
		if (err == nil) != (status >= 0) || err == nil && a.status != status {
			t.Errorf("%q: status %d, %v; want %d", line, a.status, err, status)
		}
	}
}

func TestHeadIsReadWithinABound(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\n"), forever("X: y\r\n"))
	for name, r := range map[string]io.Reader{
		"endless fields":  endless,
		"endless line":    io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nX: "), forever("y")),
		"endless interim": forever("HTTP/1.1 100 Continue\r\n\r\n"),
		"endless status":  forever("H"),
	} {
		br := bufio.NewReaderSize(r, 4<<10)
		if err := new(answer).read(br); err != errHeadSize && err != errNotHTTP {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// forever repeats a text without end.
type forever string

func (f forever) Read(p []byte) (int, error) {
	n := 0
	for n+len(f) <= len(p) {
		n += copy(p[n:], f)
	}
	if n == 0 {
		n = copy(p, f)
	}
	return n, nil
}

func TestKeepAliveHint(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"timeout=5": 5 * time.Second, "timeout=5, max=100": 5 * time.Second, "max=100,timeout=7": 7 * time.Second, "Timeout=3": 3 * time.Second,
		"timeout=0": 1, "": 0, "max=100": 0, "timeout": 0, "timeout=": 0, "timeout=-1": 0, "timeout=1.5": 0, "timeout=99999999": 0,
	} {
		if got := idleHint([]byte(value)); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

func TestSnippetIsMasked(t *testing.T) {
	const uri = "/T0/SECRET?token=SECRETQ"
	for in, out := range map[string]string{
		"no /T0/SECRET?token=SECRETQ here": "no ...?... here",
		"path /T0/SECRET alone":            "path ... alone",
		"token=SECRETQ&token=SECRETQ":      "...&...",
		"nothing":                          "nothing",
		"":                                 "",
	} {
		if got := string(mask([]byte(in), uri)); got != out {
			t.Errorf("%q: %q, want %q", in, got, out)
		}
	}
	if got := string(mask([]byte("a / and /a"), "/a")); got != "a / and /a" {
		t.Errorf("a path too short to be a secret: %q", got)
	}
}
