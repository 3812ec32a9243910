package limit_test

import (
	"fmt"
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
