package httpadmit

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/fair"
)

// A service that answers before it has the body does not keep the slot of a client
// that never sends the rest.
// Field case 91.
func TestAnEarlyAnswerDoesNotWaitForTheBody(t *testing.T) {
	s := settings(t)
	s.Slots = fair.SlotLimits{Slots: 1, Queue: 10, Waiters: 10}
	s.Stall = 100 * ms
	long := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 64<<10)) })
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex() //nolint:errcheck // HTTP/1 has it
		long(w, r)
	}))
	defer service.Close()
	to, _ := url.Parse(service.URL)
	d := newDoor(s)
	for name, h := range map[string]http.Handler{"handler": long, "short": ok, "proxy": d.Proxy(to, nil, nil)} {
		front := httptest.NewServer(d.Middleware(h))
		conn, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a-key\r\nContent-Length: 5\r\n\r\nx")
		if status, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(status, "200") {
			t.Errorf("%s: %q, %v", name, status, err)
		}
		settle(t, d)
		conn.Close()
		front.Close()
	}
}
