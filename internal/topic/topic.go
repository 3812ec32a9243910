// Package topic is the grammar of topics and of the patterns that subscribe to
// them: subjects as in NATS.
//
//	topic   = token *("." token)
//	token   = 1*( ALPHA / DIGIT / "_" / "-" )
//	pattern = topic, in which any token may be "*" (exactly one token), and the
//	          last one may be ">" (one or more tokens)
//
// Both are at most MaxLen bytes. Matching is by bytes: letters' case counts.
// Every function is pure and safe for concurrent use.
package topic

import "strings"

// MaxLen is the greatest length of a topic or a pattern, in bytes.
const MaxLen = 256

// Rule says in words what Valid demands, for error messages.
const Rule = "tokens of letters, digits, _ and -, joined by dots, at most 256 bytes"

// PatternRule says in words what ValidPattern demands, for error messages.
const PatternRule = Rule + "; a token may be *, the last one also >"

// testPrefix is of the topics of test triggers, which are made for one subscription each and match no pattern.
const testPrefix = "fairlane.test."

// Test is the topic of a test trigger for the subscription with that id, and TestOf takes it apart; it
// reports false for every other topic.
func Test(subscription string) string { return testPrefix + subscription }

func TestOf(topic string) (subscription string, ok bool) {
	return strings.CutPrefix(topic, testPrefix)
}

// Own reports whether a topic or a pattern is of the service's own events, which begin with "fairlane.": no producer
// may post them, and only patterns that begin so take them.
func Own(s string) bool { return strings.HasPrefix(s, "fairlane.") }

// Valid reports whether s is a topic that a trigger may carry.
func Valid(s string) bool { return valid(s, false) }

// ValidPattern reports whether s is a pattern that a subscription may carry.
// Every topic is a pattern that matches itself alone.
func ValidPattern(s string) bool { return valid(s, true) }

func valid(s string, pattern bool) bool {
	if len(s) == 0 || len(s) > MaxLen {
		return false
	}
	for more := true; more; {
		var tok string
		tok, s, more = strings.Cut(s, ".")
		switch {
		case pattern && tok == "*":
		case pattern && tok == ">" && !more:
		case !plain(tok):
			return false
		}
	}
	return true
}

// plain reports whether tok is a token without wildcards.
func plain(tok string) bool {
	for i := range len(tok) {
		c := tok[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return tok != ""
}

// Match reports whether pattern matches topic. Both must be valid; for others
// the answer is meaningless but Match does not panic. It does not allocate.
func Match(pattern, topic string) bool {
	for {
		p, restP, moreP := strings.Cut(pattern, ".")
		if p == ">" {
			return true
		}
		t, restT, moreT := strings.Cut(topic, ".")
		if p != "*" && p != t || moreP != moreT {
			return false
		}
		if !moreP {
			return true
		}
		pattern, topic = restP, restT
	}
}
