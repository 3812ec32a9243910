package delivery

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fairlane-dev/fairlane/engine"
)

// want checks how an attempt ended.
func want(t *testing.T, o Outcome, kind engine.ResultKind, status int, reason string) {
	t.Helper()
	if o.Result.Kind != kind || o.Status != status || o.Reason != reason {
		t.Errorf("kind %d, status %d, reason %q (%s); want %d, %d, %q",
			o.Result.Kind, o.Status, o.Reason, o.Detail, kind, status, reason)
	}
}

func TestRequestHasExactlyTheDocumentedFields(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, answering(ok200))
		now := time.Now()
		sender := open(Options{Version: "1.2.3", Now: func() time.Time { return now }})
		r := post(s.url("/hook?a=b"))
		r.Attempt, r.Limit, r.Remaining = 3, 100, 42
		want(t, sender.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
		got := s.requests()[0]
		if got.line != "POST /hook?a=b HTTP/1.1" {
			t.Errorf("request line %q", got.line)
		}
		fields := []string{
			"Host: " + s.addr(),
			"User-Agent: Fairlane/1.2.3",
			"Accept-Encoding: identity",
			"Content-Type: application/json",
			"Content-Length: 7",
			"webhook-id: msg_1",
			"webhook-timestamp: " + strconv.FormatInt(now.Unix(), 10),
			"webhook-signature: " + got.get("webhook-signature"),
			`Idempotency-Key: "msg_1"`,
			"X-Attempt: 3",
			"RateLimit-Limit: 100",
			"RateLimit-Remaining: 42",
		}
		slices.Sort(fields)
		slices.Sort(got.fields)
		if !slices.Equal(fields, got.fields) {
			t.Errorf("fields\n%s\nwant\n%s", strings.Join(got.fields, "\n"), strings.Join(fields, "\n"))
		}
		if err := verify(secret, "msg_1", now.Unix(), got.get("webhook-signature"), got.body); err != nil {
			t.Error(err)
		}
	})
}

func TestOptionalFieldsAreLeftOut(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, answering(ok200))
		sender := open(Options{})
		r := post(s.url("/"))
		r.ContentType = ""
		sender.Send(t.Context(), r)
		r.Limit = 0
		sender.Send(t.Context(), r)
		got := s.requests()
		for _, f := range got[0].fields {
			if strings.HasPrefix(f, "Content-Type") || strings.HasPrefix(f, "RateLimit") {
				t.Errorf("sent %q", f)
			}
		}
		if got[1].get("RateLimit-Limit") != "0" || got[1].get("RateLimit-Remaining") != "0" {
			t.Errorf("a limit of 0 is a limit: %q", got[1].fields)
		}
	})
}

// Field case 54.
func TestWhatIsSignedIsWhatIsSent(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, answering(ok200))
		sender := open(Options{})
		for _, body := range awkwardBodies {
			r := post(s.url("/"))
			r.Payload = body
			before := bytes.Clone(body)
			want(t, sender.Send(t.Context(), r), engine.OK, 200, ReasonStatus)
			got := s.requests()[len(s.requests())-1]
			if !bytes.Equal(got.body, before) || !bytes.Equal(body, before) {
				t.Errorf("%d bytes sent, %d arrived or were changed", len(before), len(got.body))
			}
			if n := got.get("Content-Length"); n != strconv.Itoa(len(before)) {
				t.Errorf("Content-Length %q of %d bytes", n, len(before))
			}
			at, _ := strconv.ParseInt(got.get("webhook-timestamp"), 10, 64)
			if err := verify(secret, "msg_1", at, got.get("webhook-signature"), got.body); err != nil {
				t.Errorf("%d bytes: %v", len(before), err)
			}
		}
	})
}

// Field case 55.
func TestEachAttemptKeepsItsIDAndSignsItsOwnInstant(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, answering(ok200))
		now := noon
		sender := open(Options{Now: func() time.Time { return now }})
		r := post(s.url("/"))
		sender.Send(t.Context(), r)
		now, r.Attempt = now.Add(6*time.Hour), 2
		sender.Send(t.Context(), r)
		got := s.requests()
		w, _ := standardwebhooks.NewWebhookRaw(secret)
		for i, at := range []time.Time{noon, now} {
			if got[i].get("webhook-id") != "msg_1" || got[i].get("Idempotency-Key") != `"msg_1"` {
				t.Errorf("attempt %d: id %q, key %q", i+1, got[i].get("webhook-id"), got[i].get("Idempotency-Key"))
			}
			if got[i].get("X-Attempt") != strconv.Itoa(i+1) || got[i].get("webhook-timestamp") != strconv.FormatInt(at.Unix(), 10) {
				t.Errorf("attempt %d: %q", i+1, got[i].fields)
			}
			h := http.Header{}
			for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
				h.Set(name, got[i].get(name))
			}
			if err := w.VerifyIgnoringTimestamp(got[i].body, h); err != nil {
				t.Errorf("attempt %d: %v", i+1, err)
			}
		}
		if got[0].get("webhook-signature") == got[1].get("webhook-signature") {
			t.Error("the second attempt carries the first one's signature")
		}
	})
}

// Field case 76.
func TestURLIsSentAsConfigured(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, answering(ok200))
		sender := open(Options{})
		long := strings.Repeat("q", MaxURL-100)
		for configured, target := range map[string]string{
			"":      "/",
			"/":     "/",
			"?":     "/?",
			"?x=1":  "/?x=1",
			"/?":    "/?",
			"#frag": "/",
			"/a%2Fb/%7Euser?x=%20+%2B&x=2&empty=&sig=a%3D%3D": "/a%2Fb/%7Euser?x=%20+%2B&x=2&empty=&sig=a%3D%3D",
			"//double//":     "//double//",
			"//double//?a=b": "//double//?a=b",
			"/a/../b/./c":    "/a/../b/./c",
			"/a;b=c,d:e@f":   "/a;b=c,d:e@f",
			"/a|b\"<>{}^`c":  "/a|b\"<>{}^`c",
			"/a%zz%":         "/a%zz%",
			"/a?b?c/d#e?f":   "/a?b?c/d",
			"/x?" + long:     "/x?" + long,
			"/A%2fb%2F":      "/A%2fb%2F",
		} {
			if err := (&Guard{Allow: loopback}).CheckURL(s.url(configured)); err != nil {
				t.Errorf("%.60q cannot be registered: %v", configured, err)
			}
			want(t, sender.Send(t.Context(), post(s.url(configured))), engine.OK, 200, ReasonStatus)
			got := s.requests()[len(s.requests())-1]
			if got.target() != target || got.get("Host") != s.addr() {
				t.Errorf("%.60q: %.60q on the wire, want %.60q", configured, got.target(), target)
			}
		}
	})
}

// Field case 68.
func TestRequestIsNeverRepeatedWhenTheConnectionEnds(t *testing.T) {
	for name, payload := range map[string][]byte{"with a body": []byte(`{"n":1}`), "empty": nil, "big": make([]byte, 100_000)} {
		t.Run(name, func(t *testing.T) {
			senders(t, func(t *testing.T, open func(Options) Sender) {
				s := serve(t, func(p *peer) {
					if _, ok := p.read(); !ok {
						return
					}
					p.say(ok200)
					p.read() // the second request is read, and the connection closed without an answer
				})
				sender := open(Options{})
				r := post(s.url("/"))
				r.Payload = payload
				for attempt := 1; attempt <= 20; attempt++ {
					o := sender.Send(t.Context(), r)
					if n := len(s.requests()); n != attempt {
						t.Fatalf("%d requests after attempt %d", n, attempt)
					}
					if attempt%2 == 1 {
						want(t, o, engine.OK, 200, ReasonStatus)
					} else if want(t, o, engine.Failed, 0, ReasonReset); !o.Sent {
						t.Error("not noted as sent: it may have been processed")
					}
				}
				if n := s.accepted(); n != 10 {
					t.Errorf("%d connections for 10 pairs: not reused, so nothing was shown", n)
				}
			})
		})
	}
}

// Field case 75.
func TestEveryAttemptSendsTheWholeBody(t *testing.T) {
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, func(p *peer) {
			switch p.n % 5 {
			case 0: // half of the body
				p.br.Discard(len(payload) / 2)
			case 1: // reset at the first byte
				p.br.Peek(1)
				p.Conn.(*net.TCPConn).SetLinger(0)
			case 2: // head alone
				readHead(p.br)
			default:
				p.read()
				p.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			}
		})
		sender := open(Options{})
		r := post(s.url("/"))
		r.Payload = payload
		for i := range 10 {
			o := sender.Send(t.Context(), r)
			if i%5 < 3 {
				want(t, o, engine.Failed, 0, ReasonReset)
			} else {
				want(t, o, engine.OK, 200, ReasonStatus)
			}
		}
		got := s.requests()
		if len(got) != 4 {
			t.Fatalf("%d whole requests, want 4", len(got))
		}
		for _, g := range got {
			if !bytes.Equal(g.body, payload) || g.get("Content-Length") != strconv.Itoa(len(payload)) {
				t.Errorf("%d bytes arrived of %d, Content-Length %s", len(g.body), len(payload), g.get("Content-Length"))
			}
		}
	})
}

// Field case 36.
func TestCutBeforeTheFirstByteIsNotSent(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, answering(ok200))
		sender := open(Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		o := sender.Send(ctx, post(s.url("/")))
		want(t, o, engine.NotSent, 0, ReasonCut)
		r := post(s.url("/"))
		r.Start = func() bool { return false }
		o = sender.Send(t.Context(), r)
		want(t, o, engine.NotSent, 0, ReasonCut)
		if n := len(s.requests()); n != 0 || o.Sent {
			t.Errorf("%d requests", n)
		}
	})
}

func TestCutAfterTheFirstByteIsUnknown(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		arrived := make(chan struct{})
		s := serve(t, func(p *peer) { p.read(); close(arrived); p.hang() })
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		o := open(Options{}).Send(ctx, post(s.url("/")))
		want(t, o, engine.Unknown, 0, ReasonCut)
		if !o.Sent {
			t.Error("not noted as sent")
		}
	})
}

func TestCutDuringTheBodyKeepsTheOutcome(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		arrived := make(chan struct{})
		s := serve(t, func(p *peer) {
			p.read()
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
			close(arrived)
			p.hang()
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		o := open(Options{}).Send(ctx, post(s.url("/")))
		if o.Status == 200 { // the cut may as well win against the head
			want(t, o, engine.OK, 200, ReasonStatus)
		} else {
			want(t, o, engine.Unknown, 0, ReasonCut)
		}
	})
}

func TestUnusableRequestIsOursAndOpensNoConnection(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, answering(ok200))
		sender := open(Options{})
		for name, change := range map[string]func(*Request){
			"id with a dot":           func(r *Request) { r.ID = "a.1.{}" },
			"id with a line break":    func(r *Request) { r.ID = "a\r\nX: y" },
			"content type with break": func(r *Request) { r.ContentType = "a\r\nX-Evil: 1" },
			"content type with NUL":   func(r *Request) { r.ContentType = "a\x00" },
			"no secret":               func(r *Request) { r.Secrets = nil },
			"empty secret":            func(r *Request) { r.Secrets = [][]byte{{}} },
			"userinfo":                func(r *Request) { r.URL = "http://user:pw@" + s.addr() },
			"line break in the URL":   func(r *Request) { r.URL += "\r\nX: y" },
			"no URL":                  func(r *Request) { r.URL = "" },
		} {
			r := post(s.url("/"))
			change(r)
			o := sender.Send(t.Context(), r)
			if o.Result.Kind != engine.NotSent || o.Reason != ReasonConfig || o.Sent {
				t.Errorf("%s: %+v", name, o)
			}
		}
		if n := s.accepted(); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
}

// Every delivery gets the answer that was given to it, whatever the others do.
func TestAnswersAreNeverMixedUp(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		s := serve(t, func(p *peer) {
			for n := 0; ; n++ {
				r, ok := p.read()
				if !ok {
					return
				}
				id := r.get("webhook-id")
				switch (len(id) + n) % 4 {
				case 0:
					p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(id), id))
				case 1:
					p.say("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + id)
					return
				default:
					p.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(id), id))
				}
			}
		})
		sender := open(Options{})
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := range 50 {
					r := post(s.url("/"))
					r.ID = fmt.Sprintf("msg_%d_%d", w, i)
					r.Payload = make([]byte, i*i*20)
					o := sender.Send(t.Context(), r)
					if o.Status != 200 || string(o.Snippet) != r.ID || o.Incomplete {
						t.Errorf("%s: %+v, snippet %q", r.ID, o, o.Snippet)
					}
				}
			})
		}
		wg.Wait()
		if n := len(s.requests()); n != 800 {
			t.Errorf("%d requests for 800 attempts", n)
		}
	})
}

// Field case 62.
func TestDetailsNeverHoldTheURL(t *testing.T) {
	senders(t, func(t *testing.T, open func(Options) Sender) {
		const path = "/services/T0/SECRETPATH?token=SECRETQ#f"
		echo := "HTTP/1.1 500 /services/T0/SECRETPATH\r\nLocation: " + path + "\r\nContent-Length: 70\r\n\r\nno /services/T0/SECRETPATH?token=SECRETQ here, token=SECRETQ, sorry.\r\n"
		failing := serve(t, answering(echo))
		moved := serve(t, answering("HTTP/1.1 302 x\r\nLocation: "+failing.url(path)+"\r\nContent-Length: 0\r\n\r\n"))
		reset := serve(t, func(p *peer) { p.read() })
		hole := serve(t, func(p *peer) { p.read(); p.hang() })
		garbage := serve(t, answering("SECRETPATH?\r\n\r\n"))
		sender := open(Options{})
		for name, url := range map[string]string{
			"500":      failing.url(path),
			"redirect": moved.url(path),
			"reset":    reset.url(path),
			"timeout":  hole.url(path),
			"garbage":  garbage.url(path),
			"tls":      strings.Replace(failing.url(path), "http", "https", 1),
			"guard":    "http://10.0.0.1" + path,
			"dns":      "http://nowhere.invalid" + path,
			"userinfo": "http://user:SECRETPW@h.test" + path,
			"chars":    "http://h.test" + path + " ",
		} {
			r := post(url)
			r.Timeout = 100 * time.Millisecond
			o := sender.Send(t.Context(), r)
			if text := fmt.Sprintf("%+v %s", o, o.Snippet); strings.Contains(text, "SECRET") {
				t.Errorf("%s: %s", name, text)
			}
			if o.Result.Kind == engine.OK || o.Reason == "" {
				t.Errorf("%s: %+v", name, o)
			}
		}
	})
}
