package demo

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// shot is one trigger to post.
type shot struct {
	at      time.Duration // after the phase's start
	tenant  int           // index in the phase's tenants
	topic   string
	payload []byte
}

// crossing is the payload: a vehicle crossed the border of an area.
type crossing struct {
	Seq      int     `json:"seq"`
	Event    string  `json:"event"` // enter, exit
	Vehicle  string  `json:"vehicle"`
	Fence    string  `json:"fence"`
	Lat      float64 `json:"lat"`
	Lon      float64 `json:"lon"`
	SpeedKMH int     `json:"speed_kmh"`
	At       string  `json:"at"` // after the start of the day
}

var fences = []struct {
	name     string
	lat, lon float64
}{
	{"depot-north", 52.5862, 13.3127}, {"harbour-gate", 52.5373, 13.3421},
	{"school-zone-12", 52.4931, 13.4217}, {"airport-cargo", 52.3667, 13.5033},
	{"low-emission-centre", 52.5200, 13.4050}, {"yard-south", 52.4312, 13.3760},
}

// schedule returns the triggers of a phase in order of their instants. The i-th of a
// tenant comes at a random point of its own i-th interval of 1/rate, so that the number
// is exact and the spacing is not a comb. A tenant's triggers depend on the seed and its
// name alone: the healthy load is the same in every phase.
func schedule(seed uint64, tenants []tenant, length time.Duration) []shot {
	var all []shot
	for i, t := range tenants {
		all = append(all, crossings(seed, i, t, length)...)
	}
	slices.SortStableFunc(all, func(a, b shot) int { return int(a.at - b.at) })
	return all
}

func crossings(seed uint64, index int, t tenant, length time.Duration) []shot {
	name := fnv.New64a()
	name.Write([]byte(t.name))
	rnd := rand.New(rand.NewPCG(seed, name.Sum64()))
	interval := time.Second / time.Duration(t.rate)
	inside := map[string]bool{} // vehicle@fence
	shots := make([]shot, length/interval)
	for i := range shots {
		at := time.Duration(i)*interval + time.Duration(rnd.Int64N(int64(interval)))
		c := cross(rnd, i, at, inside)
		payload, err := json.Marshal(c)
		if err != nil {
			panic(err) // strings and finite numbers always marshal
		}
		shots[i] = shot{at: at, tenant: index, topic: "geofence." + c.Event, payload: payload}
	}
	return shots
}

// cross lets a random vehicle enter an area, or leave it when it is inside.
func cross(rnd *rand.Rand, seq int, at time.Duration, inside map[string]bool) crossing {
	vehicle := fmt.Sprintf("van-%03d", rnd.IntN(240))
	fence := fences[rnd.IntN(len(fences))]
	event := "enter"
	if key := vehicle + "@" + fence.name; inside[key] {
		event = "exit"
		delete(inside, key)
	} else {
		inside[key] = true
	}
	return crossing{
		Seq: seq, Event: event, Vehicle: vehicle, Fence: fence.name,
		Lat: near(rnd, fence.lat), Lon: near(rnd, fence.lon),
		SpeedKMH: 5 + rnd.IntN(80), At: (8*time.Hour + at.Round(time.Millisecond)).String(),
	}
}

// near returns a point within some 500 m, to five digits.
func near(rnd *rand.Rand, degrees float64) float64 {
	return math.Round((degrees+(rnd.Float64()-0.5)*0.009)*1e5) / 1e5
}
