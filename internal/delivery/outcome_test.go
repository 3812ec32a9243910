package delivery

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// Field case 64.
// Field case 65.
func TestRedirectIsAFailureAndNobodyElseIsCalled(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		other := serve(t, answering(ok200))
		sender := open(Options{})
		for _, status := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
			for _, location := range []string{
				other.url("/secretpath?token=secretquery"), "http://169.254.169.254/latest/secretpath", "file:///etc/passwd",
				"/elsewhere", "", "::", "//" + other.addr() + "/",
			} {
				s := serve(t, answering(fmt.Sprintf("HTTP/1.1 %d Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", status, location)))
				o := sender.Send(t.Context(), post(s.url("/")))
				want(t, o, engine.Later, status, ReasonStatus)
				if o.Result.Answered || strings.Contains(o.Detail, "secret") {
					t.Errorf("%d to %q: %+v", status, location, o)
				}
				if location == other.url("/secretpath?token=secretquery") && o.Detail != "redirect to "+other.url("") {
					t.Errorf("the owner is not told where it leads: %q", o.Detail)
				}
				if n := len(s.requests()); n != 1 {
					t.Errorf("%d to %q: %d requests", status, location, n)
				}
			}
		}
		if n := other.accepted(); n != 0 {
			t.Errorf("%d connections to the redirect's target", n)
		}
	})
}

// Field case 66.
func TestStatusDecidesHoweverTheBodyEnds(t *testing.T) {
	endless := func(head, piece string) func(*peer) {
		return func(p *peer) {
			p.read()
			p.say(head)
			for {
				if _, err := p.Write([]byte(piece)); err != nil {
					return
				}
			}
		}
	}
	stall := func(text string) func(*peer) {
		return func(p *peer) {
			p.read()
			p.say(text)
			p.hang()
		}
	}
	once := func(text string) func(*peer) {
		return func(p *peer) {
			p.read()
			p.say(text)
		}
	}
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 1<<15, strings.Repeat("z", 1<<15))
	senders(t, func(t *testing.T, open func(Options) Sender) {
		for name, c := range map[string]struct {
			handle     func(*peer)
			kind       engine.ResultKind
			status     int
			incomplete bool
		}{
			"stalls after the head":      {stall("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), engine.OK, 200, true},
			"stalls after one byte":      {stall("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"), engine.OK, 200, true},
			"stalls before the trailer":  {stall("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"), engine.OK, 200, true},
			"endless chunks":             {endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk), engine.OK, 200, true},
			"endless without length":     {endless("HTTP/1.1 200 OK\r\n\r\n", chunk), engine.OK, 200, true},
			"ten gigabytes":              {endless("HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n", chunk), engine.OK, 200, true},
			"closes early":               {once("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789"), engine.OK, 200, true},
			"closes within a chunk":      {once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n0123456789"), engine.OK, 200, true},
			"broken chunk":               {once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), engine.OK, 200, true},
			"endless failure":            {endless("HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n", chunk), engine.Failed, 500, true},
			"no length, then the end":    {once("HTTP/1.1 200 OK\r\n\r\nall"), engine.OK, 200, false},
			"HTTP/1.0":                   {once("HTTP/1.0 200 OK\r\n\r\nall"), engine.OK, 200, false},
			"204 with a body":            {stall("HTTP/1.1 204 No Content\r\n\r\nbody that must not be"), engine.OK, 204, false},
			"chunks":                     {stall("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nall\r\n0\r\n\r\n"), engine.OK, 200, false},
			"long, but within the bound": {stall("HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + strings.Repeat("z", 65536)), engine.OK, 200, false},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := serve(t, c.handle)
				sender := open(Options{})
				r := post(s.url("/"))
				r.Timeout = time.Second
				o := sender.Send(t.Context(), r)
				want(t, o, c.kind, c.status, ReasonStatus)
				if o.Incomplete != c.incomplete || len(o.Snippet) > maxSnippet {
					t.Errorf("incomplete %v, want %v; snippet of %d", o.Incomplete, c.incomplete, len(o.Snippet))
				}
				if n := len(s.requests()); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
		}
	})
}

// Field case 67.
func TestCompressedAnswerIsNotInflated(t *testing.T) {
	bomb := "\x1f\x8b\x08\x00" + strings.Repeat("\x00", 4000)
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, answering(fmt.Sprintf("HTTP/1.1 500 Oops\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb)))
		o := open(Options{}).Send(t.Context(), post(s.url("/")))
		want(t, o, engine.Failed, 500, ReasonStatus)
		if string(o.Snippet) != bomb[:maxSnippet] {
			t.Errorf("snippet of %d bytes is not the raw start", len(o.Snippet))
		}
		if got := s.requests()[0].get("Accept-Encoding"); got != "identity" {
			t.Errorf("Accept-Encoding: %q", got)
		}
	})
}

func TestAnswerBeforeTheBodyIsReadCounts(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, func(p *peer) {
			readHead(p.br)
			p.say("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
			p.hang()
		})
		r := post(s.url("/"))
		r.Payload = make([]byte, 16<<20)
		want(t, open(Options{}).Send(t.Context(), r), engine.RejectedR, 413, ReasonStatus)
	})
}

func TestBlackHoleIsATimeout(t *testing.T) {
	t.Parallel()
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, func(p *peer) { p.read(); p.hang() })
		r := post(s.url("/"))
		r.Timeout = time.Second
		o := open(Options{}).Send(t.Context(), r)
		want(t, o, engine.Failed, 0, ReasonTimeout)
		if !o.Sent || o.Took != 0 {
			t.Errorf("%+v", o)
		}
	})
}

func TestEndpointThatReadsNothingIsATimeout(t *testing.T) {
	t.Parallel()
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, (*peer).hang)
		r := post(s.url("/"))
		r.Timeout, r.Payload = time.Second, make([]byte, 32<<20)
		o := open(Options{}).Send(t.Context(), r)
		want(t, o, engine.Failed, 0, ReasonTimeout)
	})
}

func TestRefusedConnectionIsASignForTheHost(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		o := open(Options{}).Send(t.Context(), post("http://"+ln.Addr().String()+"/"))
		want(t, o, engine.Failed, 0, ReasonDial)
		if !o.Result.Refused || o.Sent {
			t.Errorf("%+v", o)
		}
	})
}

func TestAnswerThatIsNotHTTP(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		sender := open(Options{})
		for _, text := range []string{
			"SSH-2.0-OpenSSH_9.9\r\n\r\n", "\x15\x03\x01\x00\x02\x02\x46\r\n\r\n", "ICY 200 OK\r\n\r\n", "HTTP/2 200 OK\r\n\r\n",
			"HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 abc OK\r\n\r\n",
			"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxHead) + "\r\n\r\n",
			strings.Repeat("HTTP/1.1 100 Continue\r\nX: y\r\n\r\n", maxHead/16),
		} {
			s := serve(t, func(p *peer) { p.read(); p.say(text); p.hang() })
			o := sender.Send(t.Context(), post(s.url("/")))
			if o.Result.Kind != engine.Failed || o.Status != 0 || !o.Sent {
				t.Errorf("%.30q: %+v", text, o)
			}
		}
	})
}

// Field case 39.
func TestStatusOutsideTheClassesIsAFailure(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		sender := open(Options{})
		for _, status := range []int{99, 600, 999} {
			s := serve(t, answering(fmt.Sprintf("HTTP/1.1 %03d What\r\nContent-Length: 0\r\n\r\n", status)))
			want(t, sender.Send(t.Context(), post(s.url("/"))), engine.Failed, status, ReasonStatus)
		}
	})
}

func TestInterimAnswersArePassedOver(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, answering("HTTP/1.1 100 Continue\r\n\r\n"+
			"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nTransfer-Encoding: chunked\r\nRetry-After: 9\r\nContent-Length: 7\r\n\r\n"+
			"HTTP/1.1 429 Slow Down\r\nContent-Length: 2\r\n\r\nok"))
		sender := open(Options{})
		for range 3 {
			o := sender.Send(t.Context(), post(s.url("/")))
			want(t, o, engine.Throttled, 429, ReasonStatus)
			if string(o.Snippet) != "ok" || o.Incomplete || o.Result.RetryAfter != 0 {
				t.Errorf("the interim answer's fields were taken: %+v", o)
			}
		}
	})
}

// Field case 34.
func TestRetryAfterReachesTheResult(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		sender := open(Options{Now: func() time.Time { return noon }})
		for fields, wait := range map[string]time.Duration{
			"Retry-After: 7\r\n":                   7 * time.Second,
			"Retry-After: 7\r\nretry-after: 9\r\n": 9 * time.Second,
			"Retry-After: 1.5\r\n":                 0,
			"":                                     0,
			"RETRY-AFTER:\t 60 \r\n":               time.Minute,
			"Retry-After: 9" + strings.Repeat("9", 3000) + "\r\n":                                    MaxRetryAfter,
			"Date: Wed, 21 Oct 2026 07:36:00 GMT\r\nRetry-After: Wed, 21 Oct 2026 07:36:30 GMT\r\n":  30 * time.Second,
			"Retry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\nX: " + strings.Repeat("y", 9000) + "\r\n": 2 * time.Minute,
		} {
			s := serve(t, answering("HTTP/1.1 429 Slow Down\r\n"+fields+"Content-Length: 0\r\n\r\n"))
			o := sender.Send(t.Context(), post(s.url("/")))
			want(t, o, engine.Throttled, 429, ReasonStatus)
			if o.Result.RetryAfter != wait || !o.Result.Refused {
				t.Errorf("%.40q: %+v, want %v", fields, o.Result, wait)
			}
		}
		s := serve(t, answering("HTTP/1.1 503 Later\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"))
		if o := sender.Send(t.Context(), post(s.url("/"))); o.Result != (engine.Result{Kind: engine.Throttled, RetryAfter: 5 * time.Second}) {
			t.Errorf("503: %+v", o.Result)
		}
	})
}

func TestSubscriptionsOverridesApply(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, answering("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"))
		r := post(s.url("/"))
		r.Outcomes = map[string]string{"404": "rejected"}
		want(t, open(Options{}).Send(t.Context(), r), engine.RejectedR, 404, ReasonStatus)
	})
}
