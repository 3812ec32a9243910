package redisquota_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlane-dev/fairlane/admit"
	"github.com/fairlane-dev/fairlane/admit/redisquota"
)

// A tenant's contract over a second, a day and a month, shared by three replicas.
func Example() {
	store, err := redisquota.Open(redisquota.Config{URL: "redis://10.0.0.7:6379", Replicas: 3})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	key := []string{"acme"}
	answer, err := store.Take(context.Background(), []admit.Check{
		{Policy: "second", Key: key, Cost: 1, Away: admit.AwayLocal,
			Spec: admit.Spec{Algorithm: admit.TokenBucket, Limit: 20, Window: time.Second, Burst: 60}},
		{Policy: "day", Key: key, Cost: 1, Away: admit.AwayLocal,
			Spec: admit.Spec{Algorithm: admit.SlidingWindow, Limit: 100_000, Window: admit.Day}},
		{Policy: "month", Key: key, Cost: 1, Away: admit.AwayOpen,
			Spec: admit.Spec{Algorithm: admit.FixedWindow, Limit: 2_000_000, Window: admit.Month}},
	})
	if err != nil {
		panic(err)
	}
	if !answer.Allowed {
		i := answer.Strictest()
		fmt.Println("denied; come back in", answer.Checks[i].RetryIn)
	}
}
