package delivery

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http/httputil"
	"strconv"
	"time"
)

// Bounds of an answer.
const (
	maxHead    = 64 << 10    // bytes of status line and fields, interim answers included
	maxLines   = 4           // Retry-After lines that are looked at
	maxField   = 128         // bytes of a Retry-After or Date that are looked at
	maxSnippet = 1 << 10     // bytes of the body that are kept
	maxDrain   = 64 << 10    // bytes of the body that are read so that the connection can be kept
	bodyTime   = time.Second // for snippet and drain; less if the attempt's deadline is nearer
)

type framing uint8

const (
	byClose framing = iota
	byLength
	chunked
	noBody
)

// answer is the final answer's head, as far as it matters.
//
// The status line is read strictly, for it decides. The fields are read
// leniently and distrustfully: what is not as RFC 9112 has it does not change
// the outcome, but the connection is not used again, so that a doubt about where
// this answer ends can never reach the next delivery.
type answer struct {
	status     int
	framing    framing
	length     int64
	spoilt     bool // the connection must not be used again
	idle       time.Duration
	retryAfter []string
	date       string
	location   string // scheme and host alone
	budget     int
}

var (
	errNotHTTP  = &errStage{reason: ReasonProtocol, detail: "answer is not HTTP/1"}
	errHeadSize = &errStage{reason: ReasonProtocol, detail: "answer's head is too long"}
)

// read reads interim answers, which are passed over, and the head of the final
// one. Its error is an *errStage.
func (a *answer) read(br *bufio.Reader) error {
	a.budget = maxHead
	for {
		if err := a.readStatus(br); err != nil {
			return err
		}
		a.length = -1
		if err := a.readFields(br, a.field); err != nil {
			return err
		}
		if a.status < 100 || a.status > 199 || a.status == 101 {
			break
		}
		*a = answer{budget: a.budget, spoilt: a.spoilt}
	}
	a.settle()
	return nil
}

// line reads one line without its end. A line that is longer than br's buffer
// is cut and spoils the connection.
func (a *answer) line(br *bufio.Reader) ([]byte, error) {
	line, err := br.ReadSlice('\n')
	if a.budget -= len(line); a.budget < 0 {
		return nil, errHeadSize
	}
	if err == bufio.ErrBufferFull {
		a.spoilt = true
		return a.longLine(br, bytes.Clone(line))
	}
	if err != nil {
		return nil, stageOf(err)
	}
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1], nil
	}
	a.spoilt = true
	return line, nil
}

func (a *answer) longLine(br *bufio.Reader, start []byte) ([]byte, error) {
	for {
		more, err := br.ReadSlice('\n')
		if a.budget -= len(more); a.budget < 0 {
			return nil, errHeadSize
		}
		if err == nil {
			return start, nil
		}
		if err != bufio.ErrBufferFull {
			return nil, stageOf(err)
		}
	}
}

// readStatus takes "HTTP/1." DIGIT SP 3DIGIT, then a blank and anything, or nothing.
func (a *answer) readStatus(br *bufio.Reader) error {
	l, err := a.line(br)
	if err != nil {
		return err
	}
	const lead = len("HTTP/1.1 ")
	if len(l) < lead+3 || string(l[:7]) != "HTTP/1." || !digit(l[7]) || l[8] != ' ' ||
		len(l) > lead+3 && l[lead+3] != ' ' {
		return errNotHTTP
	}
	for _, c := range l[lead : lead+3] {
		if !digit(c) {
			return errNotHTTP
		}
		a.status = 10*a.status + int(c-'0')
	}
	if l[7] == '0' {
		a.spoilt = true // HTTP/1.0 closes
	}
	return nil
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// readFields hands on each field line that is as RFC 9112 has it, up to the blank line.
func (a *answer) readFields(br *bufio.Reader, use func(name, value []byte)) error {
	for {
		l, err := a.line(br)
		if err != nil {
			return err
		}
		if len(l) == 0 {
			return nil
		}
		name, value, ok := bytes.Cut(l, []byte(":"))
		if !ok || !token(name) || bytes.ContainsFunc(value, control) {
			a.spoilt = true // a folded line, too
			continue
		}
		use(name, bytes.Trim(value, " \t"))
	}
}

// control reports what no field value may hold (RFC 9110, 5.5).
func control(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// field notes what matters of one field line.
func (a *answer) field(name, value []byte) {
	switch {
	case is(name, "content-length"):
		n, ok := number(value)
		if !ok || a.length >= 0 && a.length != n {
			a.spoilt = true
			return
		}
		a.length = n
	case is(name, "transfer-encoding"):
		if a.framing == chunked || !is(value, "chunked") {
			a.spoilt = true
		}
		a.framing = chunked
	case is(name, "connection"):
		a.spoilt = a.spoilt || !is(value, "keep-alive")
	case is(name, "keep-alive"):
		a.idle = idleHint(value)
	case a.status < 300:
	case is(name, "retry-after"):
		if len(a.retryAfter) < maxLines {
			a.retryAfter = append(a.retryAfter, shorten(value))
		}
	case is(name, "date"):
		a.date = shorten(value)
	case is(name, "location"):
		a.location = HostKey(string(value))
	}
}

// shorten keeps so much of a value that one too long is still invalid.
func shorten(v []byte) string { return string(v[:min(len(v), maxField)]) }

// settle decides where the body ends (RFC 9112 6.3).
func (a *answer) settle() {
	switch {
	case a.status == 204 || a.status == 304:
		if a.framing == chunked || a.length > 0 && a.status == 204 {
			a.spoilt = true
		}
		a.framing = noBody
	case a.status == 101:
		a.spoilt, a.framing = true, noBody
	case a.framing == chunked:
		if a.length >= 0 {
			a.spoilt = true
		}
	case a.length >= 0:
		a.framing = byLength
	default:
		a.spoilt = true
	}
}

// detail says of a redirect where it leads, without the path.
func (a *answer) detail() string {
	if a.status < 300 || a.status > 399 || a.location == "" {
		return ""
	}
	return "redirect to " + clip(a.location, 300)
}

// body reads what the bounds allow of the body: its start, a copy, and whether
// the body was read to its end. bound is asked for a deadline if the body is
// not there yet.
func (a *answer) body(br *bufio.Reader, bound func()) (snippet []byte, complete bool) {
	switch {
	case a.framing == noBody:
		return nil, true
	case a.framing == byLength && a.length <= int64(min(br.Buffered(), maxSnippet)):
		b, _ := br.Peek(int(a.length))
		snippet = append(snippet, b...)
		br.Discard(len(b))
		return snippet, true
	}
	bound()
	r := a.reader(br)
	snippet = make([]byte, maxSnippet)
	n, err := fill(r, snippet)
	if err == nil && a.worthDraining() {
		_, err = io.CopyN(io.Discard, r, maxDrain)
	}
	if err == io.EOF && a.framing == chunked {
		err = a.trailer(br)
	}
	return snippet[:n:n], err == io.EOF
}

func (a *answer) worthDraining() bool {
	return !a.spoilt && (a.framing == chunked || a.length <= maxDrain)
}

func (a *answer) reader(br *bufio.Reader) io.Reader {
	switch a.framing {
	case byLength:
		return &sized{br, a.length}
	case chunked:
		return httputil.NewChunkedReader(br)
	}
	return br
}

// trailer reads what follows the last chunk. It returns io.EOF at its end.
func (a *answer) trailer(br *bufio.Reader) error {
	if err := a.readFields(br, func(_, _ []byte) {}); err != nil {
		return err
	}
	return io.EOF
}

// sized reads a body of known length. io.EOF means that all of it was read.
type sized struct {
	br   *bufio.Reader
	left int64
}

func (s *sized) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.br.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// fill reads until b is full or r errs; io.EOF is the end of the body.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}

// number reads 1*DIGIT of at most 18 digits.
func number(v []byte) (int64, bool) {
	if len(v) == 0 || len(v) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range v {
		if !digit(c) {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// idleHint reads timeout=N of a Keep-Alive field; 0 if there is none.
func idleHint(v []byte) time.Duration {
	for part := range bytes.SplitSeq(v, []byte(",")) {
		name, value, ok := bytes.Cut(bytes.TrimSpace(part), []byte("="))
		if !ok || !is(name, "timeout") {
			continue
		}
		if n, err := strconv.ParseUint(string(value), 10, 16); err == nil {
			return max(time.Duration(n)*time.Second, 1)
		}
	}
	return 0
}

// is reports whether b is the lower-case ASCII text s, without regard to case.
func is(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := range b {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != s[i] {
			return false
		}
	}
	return true
}

// token reports whether b is a field name (RFC 9110 5.6.2).
func token(b []byte) bool {
	for _, c := range b {
		switch {
		case 'a' <= c|0x20 && c|0x20 <= 'z', digit(c):
		case bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0:
		default:
			return false
		}
	}
	return len(b) > 0
}
