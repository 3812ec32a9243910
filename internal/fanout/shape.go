package fanout

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlane-dev/fairlane/internal/delivery"
	"github.com/fairlane-dev/fairlane/internal/envelope"
	"github.com/fairlane-dev/fairlane/internal/journal"
	"github.com/fairlane-dev/fairlane/limit"
)

// dress is how a lane's requests look. The zero value is the default. Immutable.
type dress struct {
	revision  uint64 // of the subscription that it was made from
	setting   uint64 // and of the configuration
	shape     *delivery.Shape
	envelope  *envelope.Envelope
	perSecond float64 // of the contract; 0 is none
	broken    error   // why nothing can be sent: what is stored is not, or no longer, usable
}

// dressed makes the dress of a subscription, from the one that the lane had. One that is not usable is no error here: the lane's
// deliveries wait, with the reason, until a person changes it.
func (f *Fanout) dressed(s *journal.Subscription, rate limit.Rate, was dress) dress {
	d := dress{revision: s.Revision, setting: f.setting}
	if !rate.IsUnlimited() && !rate.IsPaused() {
		d.perSecond = rate.PerSecond()
	}
	if d.revision != 0 && d.revision == was.revision && d.setting == was.setting { // a connection with a client certificate belongs to its shape
		d.shape, d.envelope, d.broken = was.shape, was.envelope, was.broken
		return d
	}
	d.shape, d.envelope, d.broken = f.shape(s)
	return d
}

// shape compiles what s says of its requests. Errors are *journal.FieldError.
func (f *Fanout) shape(s *journal.Subscription) (*delivery.Shape, *envelope.Envelope, error) {
	if s.Requests.IsZero() {
		return nil, nil, nil
	}
	env, err := f.envelope(s.Requests.Envelope)
	if err != nil {
		return nil, nil, err
	}
	spec := specOf(s)
	shape, err := spec.Shape()
	if wrong := new(delivery.SpecError); errors.As(err, &wrong) {
		err = &journal.FieldError{Field: wrong.Field, Rule: wrong.Rule}
	}
	return shape, env, err
}

func specOf(s *journal.Subscription) delivery.Spec {
	r := &s.Requests
	spec := delivery.Spec{
		Signature: delivery.Signature(r.Signature), Secrets: s.Secrets, Pairs: r.Pairs,
		Optional: r.Optional, Certificate: r.Certificate, Key: r.Key,
	}
	for _, k := range r.Retired {
		spec.Retired = append(spec.Retired, delivery.Retired(k))
	}
	for _, h := range r.Headers {
		spec.Headers = append(spec.Headers, delivery.Header(h))
	}
	if r.Beside != nil {
		spec.Beside = &delivery.Beside{Signature: delivery.Signature(r.Beside.Signature), Secrets: r.Beside.Secrets}
	}
	return spec
}

// envelope finds one by name; nil is the payload as it was posted.
func (f *Fanout) envelope(name string) (*envelope.Envelope, error) {
	if name == "" || name == envelope.Raw {
		return nil, nil
	}
	if e := f.opts.Envelopes[name]; e != nil {
		return e, nil
	}
	if name == envelope.CloudEvents {
		return cloudEvents, nil
	}
	return nil, &journal.FieldError{Field: "envelope", Rule: fmt.Sprintf("%q is not one of raw, cloudevents and those of the configuration", name)}
}

var cloudEvents = envelope.ForCloudEvents()

// dressUp completes a request.
func (f *Fanout) dressUp(r *delivery.Request, d dress, t *journal.Trigger) {
	r.Shape = d.shape
	if d.perSecond > 0 && r.Limit > 0 {
		r.Window = time.Duration(float64(r.Limit) / d.perSecond * float64(time.Second))
	}
	if d.envelope != nil {
		made := f.rendered.get(d.envelope, t)
		r.Payload, r.ContentType, r.Schema = made.body, made.contentType, d.envelope.Schema()
	}
	if d.shape != nil && d.shape.WantsEvent() {
		r.Event = eventOf(t)
	}
}

func eventOf(t *journal.Trigger) *envelope.Event {
	ev := &envelope.Event{ID: t.ID, Topic: t.Topic, Position: uint64(t.Position), Accepted: t.Accepted}
	for _, a := range t.Attributes {
		ev.Attributes = append(ev.Attributes, envelope.Attribute(a))
	}
	return ev
}
