package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// pace bounds the time that a request's body may take: grace + received/rate from the start,
// at most ceiling. A steady sender of any size passes; one that drips does not.
type pace struct {
	grace   time.Duration
	rate    int // bytes per second beyond grace
	ceiling time.Duration
}

var defaultPace = pace{grace: 10 * time.Second, rate: 16 << 10, ceiling: 2 * time.Minute}

// allowed is the time allowed for received bytes.
func (p pace) allowed(received int) time.Duration {
	return min(p.ceiling, p.grace+time.Duration(received)*time.Second/time.Duration(p.rate))
}

const firstBuffer = 4 << 10

// readBody reads the whole body of at most limit bytes. Memory grows with what arrives, not
// with what was declared. A declared length above limit is refused before a byte is read, so
// that a client that expects 100-continue sends none.
func readBody(w http.ResponseWriter, r *http.Request, limit int, p pace) ([]byte, error) {
	if r.ContentLength > int64(limit) {
		return nil, oversize(limit)
	}
	if r.ContentLength == 0 {
		return []byte{}, nil
	}
	rc, start := http.NewResponseController(w), time.Now()
	buf := make([]byte, 0, bufferFor(0, limit, r.ContentLength))
	for {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, bufferFor(len(buf), limit, r.ContentLength)), buf...)
		}
		if err := rc.SetReadDeadline(start.Add(p.allowed(len(buf)))); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return nil, broken(err)
		}
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > limit:
			return nil, oversize(limit)
		case err == io.EOF || int64(len(buf)) == r.ContentLength:
			return buf, nil // net/http lifts the deadline
		case err != nil:
			return nil, broken(err)
		}
	}
}

// bufferFor is the next size of a buffer that holds n bytes: doubled, at most what is declared,
// at most one byte more than allowed.
func bufferFor(n, limit int, declared int64) int {
	size := max(firstBuffer, 2*n)
	if declared > 0 {
		size = min(size, int(declared))
	}
	return min(size, limit+1)
}

func oversize(limit int) *problem {
	p := refuse(tooLarge, "body", fmt.Sprintf("must be at most %d bytes", limit))
	p.close = true
	return p
}

// broken says why a body did not arrive whole. Nothing of it is kept.
func broken(err error) *problem {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &problem{code: slowBody, detail: "nothing was stored", close: true, cause: err}
	}
	return &problem{code: badRequest, detail: "the body ended early; nothing was stored", close: true, cause: err}
}

// checkEncoding refuses compressed bodies: what was posted is what is signed and sent.
func checkEncoding(r *http.Request) error {
	for _, v := range r.Header.Values("Content-Encoding") {
		if !strings.EqualFold(strings.TrimSpace(v), "identity") {
			return refuse(unsupportedCode, "Content-Encoding", "must be identity or absent")
		}
	}
	return nil
}
