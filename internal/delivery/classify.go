package delivery

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// Class is what an answer means for the delivery. The names are stable: a
// subscription overrides the table by them.
type Class string

const (
	Delivered Class = "delivered" // done
	Rejected  Class = "rejected"  // the message is wrong: dead at once, never repeated
	Gone      Class = "gone"      // the endpoint is: the subscription is disabled, its deliveries stay parked
	Throttled Class = "throttled" // the lane pauses, as long as Retry-After says; not counted as an attempt
	Slow      Class = "slow"      // retried on the slow schedule only
	Retry     Class = "retry"     // retried on both scales
)

// Row is one line of the outcome table, for the statuses From to To.
type Row struct {
	From, To   int
	Class      Class
	RetryAfter bool   // only with a valid Retry-After; without one the next matching row decides
	Note       string // for readers
}

// Table returns the outcome table. The first row that matches decides; a status
// that none matches (below 200, above 599) is retried. The slice is the caller's.
func Table() []Row { return slices.Clone(table) }

var table = []Row{
	{200, 299, Delivered, false, "decided by the status; a body that ends early changes nothing"},
	{300, 399, Slow, false, "never followed; a failure for budget and breaker"},
	{400, 400, Rejected, false, "the message is wrong"},
	{405, 405, Rejected, false, "the endpoint takes no POST"},
	{408, 408, Retry, false, "the endpoint gave up waiting"},
	{410, 410, Gone, false, "the endpoint is gone"},
	{411, 411, Rejected, false, "length required; it is always sent"},
	{413, 415, Rejected, false, "too large, URL too long, or an unsupported media type"},
	{422, 422, Rejected, false, "the message is wrong"},
	{425, 425, Retry, false, "a hop before the endpoint used early data"},
	{429, 429, Throttled, false, "too many requests"},
	{431, 431, Rejected, false, "header fields too large"},
	{400, 499, Slow, false, "every other 4xx; 401, 403, 404 twenty times in a row open the breaker"},
	{501, 501, Rejected, false, "the endpoint does not do this"},
	{503, 503, Throttled, true, "the endpoint says when to come back"},
	{505, 505, Rejected, false, "the endpoint does not speak HTTP/1.1"},
	{500, 599, Retry, false, "every other 5xx"},
}

// CheckOutcomes reports the first override that cannot be used. A key is a
// status from 200 to 599 or a class of statuses from "2xx" to "5xx", a value
// the name of a Class. The exact status wins over its class, and both over the
// table.
func CheckOutcomes(overrides map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(overrides)) {
		if !validKey(key) {
			return fmt.Errorf("outcomes: %q is not a status from 200 to 599 nor one of 2xx, 3xx, 4xx, 5xx", key)
		}
		if !validClass(Class(overrides[key])) {
			return fmt.Errorf("outcomes: %s: %q is not one of delivered, rejected, gone, throttled, slow, retry", key, overrides[key])
		}
	}
	return nil
}

func validKey(key string) bool {
	if len(key) != 3 || key[0] < '2' || key[0] > '5' {
		return false
	}
	_, err := strconv.ParseUint(key[1:], 10, 8)
	return err == nil || key[1:] == "xx"
}

func validClass(c Class) bool {
	switch c {
	case Delivered, Rejected, Gone, Throttled, Slow, Retry:
		return true
	}
	return false
}

// Classify says what an answer means: by overrides (see CheckOutcomes; an
// unknown value is passed over), else by the table. wait is the answer's
// Retry-After, hasWait whether it had a valid one.
func Classify(status int, wait time.Duration, hasWait bool, overrides map[string]string) engine.Result {
	class := classOf(status, hasWait, overrides)
	r := engine.Result{
		Kind:    kinds[class],
		Refused: class != Delivered && (status == 403 || status == 429),
	}
	switch class {
	case Throttled:
		if hasWait {
			r.RetryAfter = wait
		}
	case Slow:
		r.Denied = status == 401 || status == 403 || status == 404
		r.Answered = 400 <= status && status <= 499
	}
	return r
}

var kinds = map[Class]engine.ResultKind{
	Delivered: engine.OK,
	Rejected:  engine.RejectedR,
	Gone:      engine.Gone,
	Throttled: engine.Throttled,
	Slow:      engine.Later,
	Retry:     engine.Failed,
}

func classOf(status int, hasWait bool, overrides map[string]string) Class {
	if len(overrides) > 0 && 200 <= status && status <= 599 {
		exact := strconv.Itoa(status)
		if c := Class(overrides[exact]); validClass(c) {
			return c
		}
		if c := Class(overrides[exact[:1]+"xx"]); validClass(c) {
			return c
		}
	}
	for _, row := range table {
		if row.From <= status && status <= row.To && (hasWait || !row.RetryAfter) {
			return row.Class
		}
	}
	return Retry
}

// errStage is a failure before an answer: Reason and Detail of the Outcome.
type errStage struct {
	reason, detail string
	local          bool // ours: no byte left, everything is given back
	refused        bool // the host refused the connection
	slow           bool // a verdict that repeats until a person acts
}

func (e *errStage) Error() string { return e.reason + ": " + e.detail }

// failure turns an error into an Outcome. sent: bytes of the request may have
// left. cut: the caller's context has ended, which explains whatever else
// happened.
func failure(err error, sent, cut bool) Outcome {
	o := Outcome{Sent: sent, Result: engine.Result{Kind: engine.Failed}}
	var stage *errStage
	if !errors.As(err, &stage) {
		stage = &errStage{reason: ReasonReset, detail: "connection failed"}
	}
	o.Reason, o.Detail = stage.reason, stage.detail
	switch {
	case cut && sent:
		o.Reason, o.Detail = ReasonCut, "cut before the answer"
		o.Result.Kind = engine.Unknown
	case cut:
		o.Reason, o.Detail = ReasonCut, "cut before the first byte"
		o.Result.Kind = engine.NotSent
	case stage.local && !sent:
		o.Result.Kind = engine.NotSent
	case stage.slow && !sent:
		o.Result.Kind = engine.Later
	default:
		o.Result.Refused = stage.refused
	}
	return o
}
