package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// sink is an endpoint that answers 200 at once and costs little: where many thousand
// deliveries a second are measured, internal/receiver, which keeps a whole account, would
// take the machine from the sender.
type sink struct {
	listener net.Listener
	seen     func(body []byte) // told the first bytes of every request's body; may be nil
	serving  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil when closed
}

func startSink(seen func([]byte)) (*sink, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{listener: listener, seen: seen, conns: map[net.Conn]struct{}{}}
	s.serving.Go(s.accept)
	return s, nil
}

func (s *sink) url() string { return "http://" + s.listener.Addr().String() + "/" }

func (s *sink) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.conns == nil {
			c.Close()
		} else {
			s.conns[c] = struct{}{}
			s.serving.Go(func() { s.serve(c) })
		}
		s.mu.Unlock()
	}
}

func (s *sink) close() {
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.serving.Wait()
}

const sinkAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// serve answers one connection's requests.
func (s *sink) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReaderSize(c, 16<<10)
	for {
		length, err := readHead(in)
		if err != nil {
			return
		}
		if s.seen != nil {
			start, err := in.Peek(min(length, seqEnd))
			if err != nil {
				return
			}
			s.seen(start)
		}
		if _, err := in.Discard(length); err != nil {
			return
		}
		if _, err := io.WriteString(c, sinkAnswer); err != nil {
			return
		}
	}
}

var lengthField = []byte("content-length:")

// readHead reads a request up to its body and returns the body's length.
func readHead(in *bufio.Reader) (length int, err error) {
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case len(line) == 0 && first:
			return 0, errors.New("no request line")
		case len(line) == 0:
			return length, nil
		case len(line) > len(lengthField) && bytes.EqualFold(line[:len(lengthField)], lengthField):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(lengthField):]))); err != nil {
				return 0, err
			}
		}
	}
}

// endpoints are the receivers of a load; they tell the load what reaches them.
type endpoints struct {
	sinks     []*sink
	receivers []*receiver.Receiver
}

// fast starts n sinks and returns their URLs.
func (e *endpoints) fast(n int, t *tracker) (urls []string, err error) {
	for range n {
		s, err := startSink(t.arrive)
		if err != nil {
			return nil, err
		}
		e.sinks = append(e.sinks, s)
		urls = append(urls, s.url())
	}
	return urls, nil
}

// slow starts n receivers of a behaviour and returns their URLs. What they do not accept
// does not count as arrived.
func (e *endpoints) slow(n int, t *tracker, behaviour func() receiver.Behaviour) (urls []string, err error) {
	for range n {
		r, err := receiver.Start(receiver.Config{Behaviour: behaviour(), NoBook: true, Seen: func(q *receiver.Request) {
			if q.Reply.Accepts() {
				t.arrive(q.Body)
			}
		}})
		if err != nil {
			return nil, err
		}
		e.receivers = append(e.receivers, r)
		urls = append(urls, r.URL())
	}
	return urls, nil
}

func (e *endpoints) close() {
	for _, s := range e.sinks {
		s.close()
	}
	for _, r := range e.receivers {
		_ = r.Close() // its listener's; nothing was asked of it
	}
}
