package retry

import (
	"testing"
	"time"
)

func BenchmarkBudgetSucceeded(b *testing.B) {
	var budget Budget
	var w Window
	var p Pool
	b.ReportAllocs()
	now := time.Duration(0)
	for b.Loop() {
		now += 100 * time.Microsecond
		budget.Succeeded(&w, &p, now, Refused, 0)
	}
}

func BenchmarkBudgetAsk(b *testing.B) {
	var budget Budget
	w := Window{Successes: 100, Retries: 20}
	var p Pool
	b.ReportAllocs()
	now := time.Duration(0)
	for b.Loop() {
		now += 100
		budget.Ask(&w, &p, now)
	}
}
