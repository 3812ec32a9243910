package delivery_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/fairlane-dev/fairlane/internal/delivery"
)

// One attempt at an endpoint of a lab, which the guard lets pass because its
// prefix is allowed.
func ExampleClient_Send() {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("%s %s, attempt %s\n", r.Header.Get("webhook-id"), body, r.Header.Get("X-Attempt"))
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer endpoint.Close()

	sender := delivery.New(delivery.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	defer sender.Close()
	o := sender.Send(context.Background(), &delivery.Request{
		ID:          "msg_1",
		URL:         endpoint.URL + "/hook",
		ContentType: "application/json",
		Payload:     []byte(`{"order":17}`),
		Secrets:     [][]byte{[]byte("thirty-two bytes of randomness..")},
		Attempt:     1,
		Timeout:     15 * time.Second,
		Limit:       -1,
	})
	fmt.Println(o.Status, o.Reason, o.Result.RetryAfter)
	// Output:
	// msg_1 {"order":17}, attempt 1
	// 429 status 30s
}

// A URL is checked before it is stored.
func ExampleCheckURL() {
	for _, url := range []string{"https://example.com/hook", "http://169.254.169.254/", "http://0x7f.1/", "https://user:pw@example.com/"} {
		fmt.Println(delivery.CheckURL(url))
	}
	// Output:
	// <nil>
	// address not allowed
	// url: host must be a name, an IPv4 address as four decimal numbers, or an IPv6 address in brackets
	// url: must not hold a user or password
}
