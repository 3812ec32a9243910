package retry_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlane-dev/fairlane/retry"
)

// middle draws the middle of every window; a program hands in a seeded *rand.Rand.
type middle struct{}

func (middle) Float64() float64 { return 0.5 }

var _ retry.Rand = (*rand.Rand)(nil)

func ExampleSchedule_Delay() {
	var s retry.Schedule
	for attempts := uint32(1); attempts <= 5; attempts++ {
		fmt.Println(attempts, s.Delay(attempts, false, middle{}))
	}
	// Output:
	// 1 125ms
	// 2 250ms
	// 3 500ms
	// 4 1m0s
	// 5 5m0s
}

func ExampleBudget_Ask() {
	var (
		budget retry.Budget
		lane   retry.Window
		pool   retry.Pool
		now    = time.Minute
	)
	budget.Failed(&lane, now)
	perm, _ := budget.Ask(&lane, &pool, now)
	budget.Spend(&lane, &pool, now, perm)
	fmt.Println("first retry:", perm == retry.Reserved)

	perm, _ = budget.Ask(&lane, &pool, now)
	fmt.Println("second at once:", perm != retry.Refused)

	budget.Succeeded(&lane, &pool, now+time.Second, retry.Reserved, now) // the first one came through
	perm, _ = budget.Ask(&lane, &pool, now+time.Second)
	fmt.Println("after a success:", perm != retry.Refused)
	// Output:
	// first retry: true
	// second at once: false
	// after a success: true
}
