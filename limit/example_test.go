package limit_test

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/fairlane-dev/fairlane/limit"
)

// A contract of 3 a second with bursts to 5, drained at once.
func ExampleBucket() {
	rate, err := limit.ParseRate("3/s", 5)
	if err != nil {
		panic(err)
	}
	b := limit.NewBucket(rate)
	fmt.Printf("%+v\n", b.Take(0, 5))
	d := b.Take(0, 1)
	fmt.Println(d.Allowed, d.Reason, d.RetryIn)
	fmt.Println(b.Take(d.RetryIn, 1).Allowed)
	// Output:
	// {Allowed:true Reason:passed Epoch:0 Remaining:0 RetryIn:0s ResetIn:1.666666667s}
	// false later 333.333334ms
	// true
}

// The error names the field and the rule.
func ExampleParseRate() {
	_, err := limit.ParseRate("-1/s", 5)
	fmt.Println(err)
	_, err = limit.ParseRate("10/s", 0)
	fmt.Println(err)
	// Output:
	// limit: rate "-1/s": must be "unlimited", "0" (paused) or an amount per period such as "100/s", "0.1/s", "10/13s", "120/m", "1/h", "1/d"
	// limit: burst 0: must be 1 to 1000000000 tokens
}

// A cost that can never pass is told apart from one that must wait.
func ExampleRate_Take_never() {
	rate, _ := limit.NewRate(100, time.Second, 5)
	var level limit.Level
	d := rate.Take(&level, 0, 6)
	fmt.Println(d.Allowed, d.Reason, d.Remaining, d.RetryIn)
	// Output: false never 5 0s
}

// 120 a minute by calendar minutes lets 240 through around a boundary; counted
// by ten sub-windows it does not.
func ExampleNewSliding() {
	fixed, _ := limit.NewFixed(120, time.Minute)
	sliding, _ := limit.NewSliding(120, time.Minute, 10)
	before, after := 59*time.Second, 61*time.Second
	fmt.Println(fixed.Take(before, 120).Allowed, fixed.Take(after, 120).Allowed)
	fmt.Println(sliding.Take(before, 120).Allowed, sliding.Take(after, 120).Allowed)
	// Output:
	// true true
	// true false
}

// Exactly three in any second, each remembered; the left edge is outside.
func ExampleLog() {
	l, _ := limit.NewLog(3, time.Second)
	l.Take(0, 1)
	l.Take(400*time.Millisecond, 2)
	d := l.Take(900*time.Millisecond, 1)
	fmt.Println(d.Allowed, d.RetryIn)
	fmt.Println(l.Take(time.Second, 1).Allowed)
	// Output:
	// false 100ms
	// true
}

// The same contract, seen from what is used.
func ExampleLeaky() {
	rate, _ := limit.NewRate(10, time.Second, 5)
	l := limit.NewLeaky(rate)
	l.Take(0, 4)
	fmt.Println(l.Water(0), l.Water(200*time.Millisecond))
	// Output: 4 2
}

// A request passes if all of its limits let it; the answer is that of the one
// that binds.
func ExampleStricter() {
	second, _ := limit.NewFixed(10, time.Second)
	day, _ := limit.NewFixed(100, 24*time.Hour)
	day.Take(0, 95)
	d := limit.Stricter(second.Peek(0, 8), day.Peek(0, 8))
	fmt.Println(d.Allowed, d.Reason, d.Remaining, d.RetryIn)
	// Output: false later 5 24h0m0s
}

// A bucket for each customer, under the contract of its tier; another tier holds
// from the next request on, without a refill.
func ExampleTable() {
	free, _ := limit.NewRate(2, time.Second, 10)
	pro, _ := limit.NewRate(20, time.Second, 60)
	table := limit.NewTable(100_000, maphash.MakeSeed())
	fmt.Println(table.Take("acme", free, 0, 10).Remaining)
	fmt.Println(table.Take("acme", pro, 0, 1).RetryIn)
	fmt.Println(table.Take("zenith", free, 0, 1).Remaining)
	// Output:
	// 0
	// 50ms
	// 9
}
