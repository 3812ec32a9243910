package engine

import "github.com/fairlane-dev/fairlane/fair"

// The orders of the heaps. Each is the engine itself by another name, so that a
// heap can ask it without an allocation.

// laneOrder orders ready lanes: least virtual time, then least recently served.
type laneOrder Engine

func (o *laneOrder) Less(a, b uint32) bool { return (*Engine)(o).laneLess(a, b) }
func (o *laneOrder) SetIndex(id uint32, i int32) {
	o.lanes.at(id).pos = i
}

func (e *Engine) laneLess(a, b uint32) bool {
	x, y := e.lanes.at(a), e.lanes.at(b)
	if x.virtual != y.virtual {
		return x.virtual < y.virtual
	}
	return servedBefore(x.served, y.served, a, b)
}

// readyOrder is the order in which the lanes of one tenant go.
func (e *Engine) readyOrder() fair.Items {
	if e.order == Arrival {
		return (*arrivalOrder)(e)
	}
	return (*laneOrder)(e)
}

// arrivalOrder orders ready lanes by when their heads fell due.
type arrivalOrder Engine

func (o *arrivalOrder) Less(a, b uint32) bool {
	x, y := o.lanes.at(a), o.lanes.at(b)
	if x.headDue != y.headDue {
		return x.headDue < y.headDue
	}
	return servedBefore(x.served, y.served, a, b)
}
func (o *arrivalOrder) SetIndex(id uint32, i int32) { o.lanes.at(id).pos = i }

// keyOrder orders lanes by their key, then by least recently served.
type keyOrder Engine

func (o *keyOrder) Less(a, b uint32) bool {
	x, y := o.lanes.at(a), o.lanes.at(b)
	if x.key != y.key {
		return x.key < y.key
	}
	return servedBefore(x.served, y.served, a, b)
}
func (o *keyOrder) SetIndex(id uint32, i int32) { o.lanes.at(id).pos = i }

// tenantOrder orders ready tenants as laneOrder orders lanes.
type tenantOrder Engine

func (o *tenantOrder) Less(a, b uint32) bool { return (*Engine)(o).tenantLess(a, b) }
func (o *tenantOrder) SetIndex(id uint32, i int32) {
	o.tenants.at(id).pos = i
}

func (e *Engine) tenantLess(a, b uint32) bool {
	x, y := e.tenants.at(a), e.tenants.at(b)
	if x.virtual != y.virtual {
		return x.virtual < y.virtual
	}
	return servedBefore(x.served, y.served, a, b)
}

// probeOrder orders tenants by since when their first lane may probe.
type probeOrder Engine

func (o *probeOrder) Less(a, b uint32) bool {
	x, y := o.since(a), o.since(b)
	if x != y {
		return x < y
	}
	return a < b
}
func (o *probeOrder) SetIndex(id uint32, i int32) { o.tenants.at(id).probePos = i }

func (o *probeOrder) since(id uint32) int64 {
	if top, ok := o.tenants.at(id).probe.Top(); ok {
		return o.lanes.at(top).key
	}
	return 0
}

// servedBefore breaks ties: serial numbers that wrap around (RFC 1982), then ids.
func servedBefore(x, y, a, b uint32) bool {
	if x != y {
		return int32(x-y) < 0
	}
	return a < b
}
