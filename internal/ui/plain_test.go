package ui

import (
	"testing"

	"github.com/fairlane-dev/fairlane/engine"
)

// Every reason that the engine gives has words that a tenant understands: a new one without fails here.
func TestEveryReasonHasWords(t *testing.T) {
	for r := engine.None + 1; r.String() != "unknown"; r++ {
		if words := plainReason(r.String()); words == r.String() || words == "" {
			t.Errorf("reason %v has no words", r)
		}
	}
}

// A payload is shown as text only where a person can read all of it.
func TestSafeText(t *testing.T) {
	long := make([]byte, shownBytes+5)
	for i := range long {
		long[i] = "ä"[i%2]
	}
	for _, c := range []struct {
		name, in, form string
		cut            bool
	}{
		{"json", "{\"a\":\n1}", "text", false},
		{"empty", "", "text", false},
		{"escape", "a\x1b[31m", "bytes in hex", false},
		{"not UTF-8", "a\xff", "bytes in hex", false},
		{"turned round", "abc\u202edef", "bytes in hex", false},
		{"long, cut in a letter", "x" + string(long), "text", true},
		{"long bytes", "\x00" + string(long), "bytes in hex", true},
	} {
		text, form, cut := safeText([]byte(c.in))
		if form != c.form || cut != c.cut || c.in != "" && text == "" {
			t.Errorf("%s: %s, cut %v; want %s, %v", c.name, form, cut, c.form, c.cut)
		}
	}
}

// A path comes back from the sign-in only if it is below the pages.
func TestLocal(t *testing.T) {
	for to, want := range map[string]string{
		"/lanes?q=a": "/lanes?q=a", "": "/", "//evil.example": "/", "https://evil.example/": "/", `/\evil.example`: "/", "lanes": "/", "/": "/",
	} {
		if got := local(to); got != want {
			t.Errorf("local(%q) = %q, want %q", to, got, want)
		}
	}
}
