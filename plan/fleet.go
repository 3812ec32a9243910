package plan

import (
	"math"
	"time"
)

// FleetInput asks what one machine needs for a load.
type FleetInput struct {
	Subscriptions float64       // whole
	Tenants       float64       // whole, at most the subscriptions
	Triggers      float64       // a second
	FanOut        float64       // deliveries of a trigger, mean; 0 means 1
	Payload       float64       // bytes, whole
	Latency       time.Duration // mean time that a request holds a slot
	Outage        time.Duration // for which endpoints may be down and the log keeps all; 0 means 72h
}

// FleetResult is an estimate by the assumptions that it names.
type FleetResult struct {
	Deliveries  float64      `json:"deliveries_per_second"`
	SlotsBusy   float64      `json:"slots_busy"` // deliveries/s * latency, by Little's law
	Slots       float64      `json:"slots"`      // so that the mean load is SlotsUsed of them
	Cores       float64      `json:"cores"`
	MemoryBytes float64      `json:"memory_bytes"` // of the heap, for what is registered and on its way
	Descriptors float64      `json:"descriptors"`
	LogBytes    float64      `json:"log_bytes_per_second"` // written: payloads and outcomes
	LogPerDay   float64      `json:"log_bytes_per_day"`
	Disk        float64      `json:"disk_bytes"` // data.max_bytes: half of it takes the payloads of the outage
	Assumptions []Assumption `json:"assumptions"`
}

// Assumption is a figure that the plan rests on.
type Assumption struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	From  string  `json:"from"`
}

// What a fleet is reckoned with.
const (
	SlotsUsed          = 0.7      // of the slots, in the mean
	cpuPerTrigger      = 0.275e-3 // seconds; row peers-cpu: 0.428 ms at a fan-out of 1
	cpuPerDelivery     = 0.153e-3 // and 0.16 ms a delivery at 40
	bytesPerSub        = 2_337    // row registry
	bytesPerTenant     = 272      // row lanes: 486 less 214
	bytesPerDelivery   = 1_300    // row alloc, whole path
	collectorFactor    = 2        // GOGC=100: the heap grows to twice what is live
	baseBytes          = 64e6     // process, embedded log, caches
	baseDescriptors    = 64       // log, listener, logs
	idleConnections    = 4096     // kept at most, beside those in use
	triggerOverhead    = 64       // record format: bytes of a trigger beside its payload
	outcomeBytes       = 16       // record format: one outcome
	payloadShareOfDisk = 0.5      // data.max_bytes: half for triggers
	defaultFleetOutage = 72 * time.Hour
)

var assumptions = []Assumption{
	{"slots used", SlotsUsed, "of all, in the mean", "room for bursts and slow endpoints"},
	{"CPU per trigger", cpuPerTrigger, "s", "docs/benchmarks.md, row peers-cpu"},
	{"CPU per delivery", cpuPerDelivery, "s", "docs/benchmarks.md, row peers-cpu"},
	{"memory per subscription", bytesPerSub, "bytes", "docs/benchmarks.md, row registry"},
	{"memory per tenant", bytesPerTenant, "bytes", "docs/benchmarks.md, row lanes"},
	{"memory per delivery on its way", bytesPerDelivery, "bytes and its payload", "docs/benchmarks.md, row alloc"},
	{"heap over what is live", collectorFactor, "x", "Go's default GOGC"},
	{"memory of the process", baseBytes, "bytes", "an estimate"},
	{"idle connections", idleConnections, "at most", "the sender; hosts that are active bound it too"},
	{"log per trigger", triggerOverhead, "bytes and its payload", "the record format, short names"},
	{"log per delivery", outcomeBytes, "bytes", "the record format"},
	{"disk for payloads", payloadShareOfDisk, "of data.max_bytes", "docs/operating.md"},
}

// Fleet adds up.
func Fleet(in FleetInput) (FleetResult, error) {
	if in.FanOut == 0 {
		in.FanOut = 1
	}
	if in.Outage == 0 {
		in.Outage = defaultFleetOutage
	}
	if err := checkFleet(in); err != nil {
		return FleetResult{}, err
	}
	r := FleetResult{Deliveries: in.Triggers * in.FanOut, Assumptions: assumptions}
	r.SlotsBusy = times(r.Deliveries, in.Latency)
	r.Slots = math.Ceil(r.SlotsBusy / SlotsUsed)
	r.Cores = in.Triggers*cpuPerTrigger + r.Deliveries*cpuPerDelivery
	live := in.Subscriptions*bytesPerSub + in.Tenants*bytesPerTenant + r.Slots*(bytesPerDelivery+in.Payload)
	r.MemoryBytes = baseBytes + collectorFactor*live
	r.Descriptors = baseDescriptors + r.Slots + min(idleConnections, in.Subscriptions)
	payloads := in.Triggers * (in.Payload + triggerOverhead)
	r.LogBytes = payloads + r.Deliveries*outcomeBytes
	r.LogPerDay = times(r.LogBytes, 24*time.Hour)
	r.Disk = times(payloads, in.Outage) / payloadShareOfDisk
	return r, nil
}

func checkFleet(in FleetInput) error {
	var c check
	c.whole("subscriptions", in.Subscriptions, 1)
	c.whole("tenants", in.Tenants, 1)
	if in.Tenants > in.Subscriptions {
		c.fail("tenants", in.Tenants, "must be at most the subscriptions")
	}
	c.rate("triggers", in.Triggers)
	c.number("fan_out", in.FanOut, 0, MaxFanOut, "must be 0 to 1000000 deliveries of a trigger")
	c.number("payload", in.Payload, 0, 6<<20, "must be 0 to 6MiB, the most that a trigger may have")
	c.duration("latency", in.Latency, time.Microsecond)
	c.duration("outage", in.Outage, 0)
	return c.err()
}
