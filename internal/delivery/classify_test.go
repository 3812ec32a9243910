package delivery

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlane-dev/fairlane/engine"
)

// expected is the published table once more, spelled out by status, written
// from the rules and not from the rows.
func expected(status int, hasWait bool) engine.Result {
	r := engine.Result{Kind: engine.Failed}
	switch status {
	case 400, 405, 411, 413, 414, 415, 422, 431, 501, 505:
		r.Kind = engine.RejectedR
		return r
	case 410:
		r.Kind = engine.Gone
		return r
	case 429:
		r.Kind, r.Refused = engine.Throttled, true
		return r
	case 408, 425:
		return r
	case 503:
		if hasWait {
			r.Kind = engine.Throttled
		}
		return r
	}
	switch status / 100 {
	case 2:
		r.Kind = engine.OK
	case 3:
		r.Kind = engine.Later
	case 4:
		r.Kind, r.Answered = engine.Later, true
		r.Denied = status == 401 || status == 403 || status == 404
		r.Refused = status == 403
	}
	return r
}

// Field case 39.
// Field case 34.
func TestOutcomeTableOfEveryStatus(t *testing.T) {
	for status := 0; status <= 999; status++ {
		for _, hasWait := range []bool{false, true} {
			want := expected(status, hasWait)
			if want.Kind == engine.Throttled && hasWait {
				want.RetryAfter = 90 * time.Second
			}
			if got := Classify(status, 90*time.Second, hasWait, nil); got != want {
				t.Errorf("%d, Retry-After %v: %+v, want %+v", status, hasWait, got, want)
			}
		}
	}
}

func TestThrottledWithoutRetryAfterStatesNoWait(t *testing.T) {
	if got := Classify(429, 90*time.Second, false, nil); got.RetryAfter != 0 {
		t.Errorf("%+v", got)
	}
}

func TestTableIsReadTopDownAndBelongsToTheCaller(t *testing.T) {
	rows := Table()
	for i, row := range rows {
		if row.From > row.To || !validClass(row.Class) || row.Note == "" {
			t.Errorf("row %d: %+v", i, row)
		}
		rows[i] = Row{}
	}
	if got := Classify(200, 0, false, nil).Kind; got != engine.OK {
		t.Errorf("changing the copy changed the table: 200 is %v", got)
	}
}

func TestOverridesWinByStatusThenByClass(t *testing.T) {
	over := map[string]string{"404": "rejected", "4xx": "retry", "202": "slow", "500": "nonsense", "503": "gone"}
	for _, c := range []struct {
		status int
		want   engine.Result
	}{
		{404, engine.Result{Kind: engine.RejectedR}},
		{401, engine.Result{Kind: engine.Failed}},
		{403, engine.Result{Kind: engine.Failed, Refused: true}},
		{410, engine.Result{Kind: engine.Failed}},
		{429, engine.Result{Kind: engine.Failed, Refused: true}},
		{200, engine.Result{Kind: engine.OK}},
		{202, engine.Result{Kind: engine.Later}},
		{500, engine.Result{Kind: engine.Failed}}, // an unknown value is passed over
		{503, engine.Result{Kind: engine.Gone}},   // with Retry-After, too
		{301, engine.Result{Kind: engine.Later}},
		{99, engine.Result{Kind: engine.Failed}},
		{600, engine.Result{Kind: engine.Failed}},
	} {
		if got := Classify(c.status, time.Minute, true, over); got != c.want {
			t.Errorf("%d: %+v, want %+v", c.status, got, c.want)
		}
	}
	throttled := Classify(502, time.Minute, true, map[string]string{"5xx": "throttled"})
	if throttled.Kind != engine.Throttled || throttled.RetryAfter != time.Minute {
		t.Errorf("502 as throttled: %+v", throttled)
	}
	accepted := Classify(403, 0, false, map[string]string{"403": "delivered"})
	if accepted != (engine.Result{Kind: engine.OK}) {
		t.Errorf("403 as delivered: %+v", accepted)
	}
}

func TestOverridesAreCheckedByName(t *testing.T) {
	if err := CheckOutcomes(map[string]string{"200": "retry", "599": "gone", "3xx": "delivered", "404": "slow"}); err != nil {
		t.Error(err)
	}
	if err := CheckOutcomes(nil); err != nil {
		t.Error(err)
	}
	for _, key := range []string{"", "2", "100", "199", "600", "1xx", "6xx", "XXX", "4x4", "4XX", "+40", "2 0", "40", "4040"} {
		if err := CheckOutcomes(map[string]string{key: "retry"}); err == nil || !strings.Contains(err.Error(), "outcomes") {
			t.Errorf("status %q: %v", key, err)
		}
	}
	for _, class := range []string{"", "ok", "Retry", "dead", "ignore"} {
		if err := CheckOutcomes(map[string]string{"404": class}); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("class %q: %v", class, err)
		}
	}
}
