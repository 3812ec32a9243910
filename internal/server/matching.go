package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fairlane-dev/fairlane/internal/fanout"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/internal/topic"
)

// What decides who gets a trigger besides its audience and topic, and in which order: attributes, an order key,
// grants.

const (
	maxAttributes = 16  // of a trigger, and of a filter
	maxValue      = 256 // bytes of an attribute's value, or of an order key
	maxGrants     = 64
	maxLane       = 64

	attributePrefix = "Fairlane-Attribute-"
	orderKeyHeader  = "Fairlane-Order-Key"

	nameRule  = "a-z and 0-9, at most 64 bytes" // CloudEvents 1.0.2, 3.1: names of attributes
	valueRule = "1 to 256 bytes of visible ASCII, blanks inside"
	laneRule  = "1 to 64 letters, digits, . _ and -"
)

// attributes reads Fairlane-Attribute-NAME and Fairlane-Order-Key, the attribute partitionkey by another name;
// in the order of their names.
func attributes(h http.Header) (list []journal.Attribute, err error) {
	for field, values := range h {
		name, is := strings.CutPrefix(field, attributePrefix)
		if field == orderKeyHeader {
			name, is = fanout.OrderKey, true
		}
		if !is {
			continue
		}
		name = strings.ToLower(name)
		switch {
		case !validName64(name):
			return nil, refuse(badRequest, field, "must be "+attributePrefix+" and a name: "+nameRule)
		case len(values) > 1:
			return nil, refuse(badRequest, field, "must stand once")
		case !validValue(values[0]):
			return nil, refuse(badRequest, field, "must be "+valueRule)
		}
		list = append(list, journal.Attribute{Name: name, Value: values[0]})
	}
	slices.SortFunc(list, func(a, b journal.Attribute) int { return strings.Compare(a.Name, b.Name) })
	if len(list) > maxAttributes {
		return nil, refuse(badRequest, attributePrefix+"*", fmt.Sprintf("must be at most %d", maxAttributes))
	}
	for i := 1; i < len(list); i++ {
		if list[i].Name == list[i-1].Name {
			return nil, refuse(badRequest, orderKeyHeader, "must not stand beside the attribute "+fanout.OrderKey)
		}
	}
	return list, nil
}

func validName64(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

func validValue(s string) bool {
	return s != "" && len(s) <= maxValue && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func validLane(s string) bool {
	return s != "" && len(s) <= maxLane && !strings.ContainsFunc(s, func(r rune) bool {
		letter := 'a' <= r|0x20 && r|0x20 <= 'z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

// readMatching reads topics and match, which take effect together, at a position.
func readMatching(o *object, sub *journal.Subscription) {
	topics, match := sub.Topics(), sub.Match()
	o.read("topics", nil, parsePatterns(&topics, 1, maxTopics))
	o.read("match", func() { match = nil }, parseMatch(&match))
	if o.has("topics") || o.has("match") {
		sub.SetMatching(topics, match)
	}
}

// readOrder reads what creation alone may say.
func readOrder(o *object, sub *journal.Subscription) {
	o.read("order", nil, parseWord(&sub.Order, journal.OrderAll, journal.OrderKey))
	o.read("lane", nil, parseText(&sub.Group, laneRule, validLane))
}

func parsePatterns(to *[]string, least, most int) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		list, is := texts(raw)
		if !is || len(list) < least || len(list) > most {
			return fmt.Sprintf("a list of %d to %d patterns", least, most)
		}
		for i, p := range list {
			if !topic.ValidPattern(p) {
				return "patterns: " + topic.PatternRule
			}
			if slices.Contains(list[:i], p) {
				return "a list of different patterns"
			}
		}
		*to = list
		return ""
	}
}

func parseMatch(to *map[string]string) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		rule := fmt.Sprintf("an object of at most %d attributes: names of %s; values of %s", maxAttributes, nameRule, valueRule)
		inner, bad := parseObject(raw, "match.")
		if bad != "" || len(inner.problems) > 0 || len(inner.order) > maxAttributes {
			return rule
		}
		m := map[string]string{}
		for _, name := range inner.order {
			value, is := text(inner.fields[name])
			if !is || !validName64(name) || !validValue(value) {
				return rule
			}
			m[name] = value
		}
		*to = m
		return ""
	}
}

// parseWord takes one of the words.
func parseWord(to *string, words ...string) func(json.RawMessage) string {
	return parseText(to, strings.Join(words, " or "), func(s string) bool { return slices.Contains(words, s) })
}
