package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const sinkSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// runSink starts the command and returns its address and output.
func runSink(t *testing.T, args ...string) (url string, out *output) {
	t.Helper()
	out, log := &output{}, &output{}
	cmd := newSinkCmd()
	cmd.SetArgs(append(args, "--listen", "127.0.0.1:0"))
	cmd.SetOut(out)
	cmd.SetErr(log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("sink ended with %v", err)
		}
	})
	soon(t, "the sink listens", func() bool {
		url = regexp.MustCompile(`http://\S+/`).FindString(log.String())
		return url != "" || len(ended) > 0
	})
	return url, out
}

func deliver(t *testing.T, url, body string, sign bool) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("webhook-id", "msg_1")
	req.Header.Set("X-Attempt", "2")
	if sign {
		wh, err := standardwebhooks.NewWebhook(sinkSecret)
		if err != nil {
			t.Fatal(err)
		}
		signature, err := wh.Sign("msg_1", now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("webhook-timestamp", fmt.Sprint(now.Unix()))
		req.Header.Set("webhook-signature", signature)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestSinkPrintsEachRequestInOneLine(t *testing.T) {
	url, out := runSink(t, "--verify", sinkSecret)
	if status := deliver(t, url, "{\"vehicle\":\n\"truck-7\"}", true); status != 200 {
		t.Errorf("answered %d", status)
	}
	want := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3}  msg_1  attempt 2  application/json  22 B  signature valid  -> 200 OK  \{"vehicle": "truck-7"\}\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("printed %q", out)
	}
}

func TestSinkSaysWhatTheSignatureIsWorth(t *testing.T) {
	other := "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	for _, c := range []struct {
		name string
		args []string
		sign bool
		want string
	}{
		{"right secret", []string{"--verify", sinkSecret}, true, "valid"},
		{"other secret", []string{"--verify", other}, true, "invalid"},
		{"no secret", nil, true, "unchecked"},
		{"no signature", []string{"--verify", sinkSecret}, false, "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, out := runSink(t, append(c.args, "--json", "--mode", "fail")...)
			if status := deliver(t, url, `{"a": 1}`, c.sign); status != 500 {
				t.Errorf("mode fail answered %d", status)
			}
			var line sinkLine
			if err := json.Unmarshal([]byte(out.String()), &line); err != nil {
				t.Fatalf("%q: %v", out, err)
			}
			if line.Signature != c.want || line.Answer != 500 || line.Bytes != 8 || line.Body != `{"a": 1}` {
				t.Errorf("%+v, want signature %s", line, c.want)
			}
		})
	}
}

func TestSinkRefusesWhatItCannotUse(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--mode holes", `--mode: unknown mode "holes"`},
		{"--verify secret", "--verify: a secret is whsec_ and base64"},
		{"--verify whsec_", "--verify: a secret is whsec_ and base64"},
		{"--verify whsec_%%%", "--verify: what follows whsec_ is not base64"},
		{"--listen nowhere", "--listen:"},
	} {
		cmd := newSinkCmd()
		cmd.SetArgs(strings.Fields(c.args))
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestPreviewIsSafeForATerminal(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"plain", "plain"},
		{"a\x1b[2Jb\r\nc", "a [2Jb  c"},
		{"\xff\xfe\x00", ""},
		{strings.Repeat("x", 9) + "é", strings.Repeat("x", 9)},
		{"12345678é9", "12345678é"},
	} {
		if got := preview([]byte(c.body), 10); got != c.want {
			t.Errorf("%q: %q, want %q", c.body, got, c.want)
		}
	}
}
