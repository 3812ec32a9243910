package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fairlane-dev/fairlane/internal/receiver"
)

// newSinkCmd is `fairlane sink`: a receiver to point a first subscription at.
func newSinkCmd() *cobra.Command {
	var s sink
	var listen, mode, secret string
	cmd := &cobra.Command{
		Use:   "sink",
		Short: "Receive deliveries and print each in one line",
		Long: "Listens, answers every request as its mode says, and prints each in one line:\n" +
			"time, id, attempt, content type (and topic, where the request carries one), bytes,\n" +
			"signature, the answer it gets, and the start of a text body.\n\nModes:\n" + receiver.ModeHelp(),
		Example: "  fairlane sink\n  fairlane sink --mode throttle --listen 127.0.0.1:9001\n  fairlane sink --verify whsec_... --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			s.out, s.log = cmd.OutOrStdout(), cmd.ErrOrStderr()
			behaviour, err := receiver.Mode(mode)
			if err != nil {
				return usageError{fmt.Errorf("--mode: %w", err)}
			}
			if secret != "" {
				if s.webhook, err = verifier(secret); err != nil {
					return usageError{err}
				}
			}
			return s.run(ctx, receiver.Config{Listen: listen, Behaviour: behaviour, Seen: s.print, NoBook: true}, mode)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9000", "address to listen on")
	cmd.Flags().StringVar(&mode, "mode", "ok", "how requests are answered: "+strings.Join(receiver.ModeNames(), ", "))
	cmd.Flags().StringVar(&secret, "verify", "", "check signatures with this secret (whsec_...)")
	cmd.Flags().BoolVar(&s.json, "json", false, "print one JSON object a line")
	return cmd
}

// sink prints what a receiver gets.
type sink struct {
	out, log io.Writer
	json     bool
	webhook  *standardwebhooks.Webhook // nil: signatures are not checked

	mu sync.Mutex // one line at a time
}

// run serves until ctx ends.
func (s *sink) run(ctx context.Context, c receiver.Config, mode string) error {
	r, err := receiver.Start(c)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	fmt.Fprintf(s.log, "listening on %s, mode %s; Ctrl-C ends\n", r.URL(), mode)
	<-ctx.Done()
	return r.Close()
}

// verifier reads a secret without ever repeating it in an error.
func verifier(secret string) (*standardwebhooks.Webhook, error) {
	if !strings.HasPrefix(secret, "whsec_") || len(secret) == len("whsec_") {
		return nil, fmt.Errorf("--verify: a secret is whsec_ and base64")
	}
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, fmt.Errorf("--verify: what follows whsec_ is not base64")
	}
	return webhook, nil
}

// sinkLine is one request as `sink --json` prints it.
type sinkLine struct {
	At          time.Time `json:"at"`
	ID          string    `json:"id"`
	Attempt     string    `json:"attempt"`
	Topic       string    `json:"topic,omitempty"`
	ContentType string    `json:"content_type"`
	Bytes       int       `json:"bytes"`
	Signature   string    `json:"signature"` // valid, invalid, none, unchecked
	Answer      int       `json:"answer"`    // status; 0: no answer
	Body        string    `json:"body"`      // first 60 bytes of text, "" for anything else
}

// print prints one request; the receiver calls it from many goroutines.
func (s *sink) print(q *receiver.Request) {
	line := sinkLine{
		At:          time.Now(),
		ID:          printable(q.Header.Get("webhook-id")),
		Attempt:     printable(q.Header.Get("X-Attempt")),
		Topic:       printable(q.Header.Get("ce-type")),
		ContentType: printable(q.Header.Get("Content-Type")),
		Bytes:       len(q.Body),
		Signature:   s.signature(q),
		Body:        preview(q.Body, 60),
	}
	if !q.Reply.Close {
		line.Answer = q.Reply.Status
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.json {
		out := json.NewEncoder(s.out)
		out.SetEscapeHTML(false)
		_ = out.Encode(line)
		return
	}
	fmt.Fprintln(s.out, line.text())
}

func (l sinkLine) text() string {
	kind := dash(l.ContentType)
	if l.Topic != "" {
		kind = l.Topic + " " + kind
	}
	answer := "no answer"
	if l.Answer != 0 {
		answer = fmt.Sprintf("%d %s", l.Answer, http.StatusText(l.Answer))
	}
	return fmt.Sprintf("%s  %s  attempt %s  %s  %d B  signature %s  -> %s  %s",
		l.At.Format("15:04:05.000"), dash(l.ID), dash(l.Attempt), kind, l.Bytes, l.Signature, answer, l.Body)
}

// signature says what the headers' signature is worth.
func (s *sink) signature(q *receiver.Request) string {
	switch {
	case q.Header.Get(standardwebhooks.HeaderWebhookSignature) == "":
		return "none"
	case s.webhook == nil:
		return "unchecked"
	case s.webhook.Verify(q.Body, q.Header) != nil:
		return "invalid"
	}
	return "valid"
}

// preview returns the first bytes of a text, whole runes only and safe for a terminal,
// or "" when the body is not text.
func preview(body []byte, limit int) string {
	cut := body
	if len(cut) > limit {
		for cut = cut[:limit]; len(cut) > 0 && !utf8.RuneStart(body[len(cut)]); {
			cut = cut[:len(cut)-1]
		}
	}
	if !utf8.Valid(cut) {
		return ""
	}
	return printable(string(cut))
}

// printable replaces what would move the cursor or break the line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
