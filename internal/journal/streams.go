package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	triggersStream = "TRIGGERS"
	outcomesStream = "OUTCOMES"
	heldStream     = "HELD"

	triggersSubject    = "fairlane.triggers"
	heldSubject        = "fairlane.held"
	recordsSubject     = "fairlane.outcomes.records"
	checkpointsSubject = "fairlane.outcomes.checkpoints"
	epochsSubject      = "fairlane.outcomes.epochs"
)

// streamConfigs splits the room: TRIGGERS half, HELD two fifths, OUTCOMES a tenth. No age limit: it
// would run on the wall clock. Only bytes are limited, and a full stream refuses.
func streamConfigs(maxBytes int64, replicas int) []jetstream.StreamConfig {
	base := jetstream.StreamConfig{
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage,
		MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1, MaxMsgSize: -1, Replicas: replicas,
		Duplicates:  100 * time.Millisecond, // message ids are not used; a wide window makes starts slow
		AllowDirect: true,
	}
	triggers, outcomes, held := base, base, base
	triggers.Name, triggers.Subjects, triggers.MaxBytes, triggers.DenyDelete = triggersStream, []string{triggersSubject}, maxBytes/2, true
	outcomes.Name, outcomes.MaxBytes, outcomes.DenyDelete = outcomesStream, maxBytes/10, true
	outcomes.Subjects = []string{recordsSubject, checkpointsSubject, epochsSubject}
	held.Name, held.Subjects, held.MaxBytes = heldStream, []string{heldSubject}, maxBytes/5*2
	return []jetstream.StreamConfig{triggers, outcomes, held}
}

// openStreams creates what is missing and adopts a changed size or number of replicas.
func (l *link) openStreams(ctx context.Context, maxBytes int64) error {
	for _, c := range streamConfigs(maxBytes, l.replicas) {
		if err := l.openStream(ctx, c); err != nil {
			return fmt.Errorf("journal: stream %s: %w", c.Name, err)
		}
	}
	return nil
}

func (l *link) openStream(ctx context.Context, want jetstream.StreamConfig) error {
	return l.asked(ctx, func(ctx context.Context) error { return openStream(ctx, l.js, want) })
}

func openStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, want)
		return err
	}
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	if info.Config.MaxBytes == want.MaxBytes && max(info.Config.Replicas, 1) == want.Replicas {
		return nil
	}
	if int64(info.State.Bytes) > want.MaxBytes { // the server would delete to fit
		return fmt.Errorf("holds %d bytes, cannot be limited to %d: raise the journal's MaxBytes", info.State.Bytes, want.MaxBytes)
	}
	changed := info.Config
	changed.MaxBytes, changed.Replicas = want.MaxBytes, want.Replicas
	_, err = js.UpdateStream(ctx, changed)
	return err
}

// span is what a stream holds: sequences first to last; none when last < first.
type span struct {
	first, last uint64
	bytes, max  int64
	oldest      time.Time // of the first; zero where there is none
}

// whole is span for a stream in which nothing of ours ever removes a message: a gap is Damage.
func (l *link) whole(ctx context.Context, name string) (span, error) {
	s, deleted, err := l.state(ctx, name)
	if err == nil && deleted > 0 {
		err = &Damage{Stream: name, From: s.first, To: s.last, What: fmt.Sprintf("%d messages are missing", deleted)}
	}
	return s, err
}

// span asks the server.
func (l *link) span(ctx context.Context, name string) (span, error) {
	s, _, err := l.state(ctx, name)
	return s, err
}

func (l *link) state(ctx context.Context, name string) (s span, deleted int, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	st, err := l.js.Stream(ctx, name)
	if err != nil {
		return span{}, 0, unanswered(name, err)
	}
	info := st.CachedInfo()
	return span{info.State.FirstSeq, info.State.LastSeq, int64(info.State.Bytes), info.Config.MaxBytes, info.State.FirstTime}, info.State.NumDeleted, nil
}

// Damage is what ErrDamaged stands for: the messages From to To of Stream are missing or cannot be
// read. Nothing has been deleted.
type Damage struct {
	Stream   string
	From, To uint64 // sequences; a position is a sequence of TRIGGERS * 256 + index
	What     string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%v: %s, messages %d to %d: %s", ErrDamaged, d.Stream, d.From, d.To, d.What)
}

// Is makes a Damage an ErrDamaged.
func (d *Damage) Is(target error) bool { return target == ErrDamaged }

// damagedAt says where err was found, when it is damage.
func damagedAt(stream string, seq uint64, err error) error {
	var known *Damage
	if err == nil || !errors.Is(err, ErrDamaged) || errors.As(err, &known) {
		return err
	}
	return &Damage{Stream: stream, From: seq, To: seq, What: err.Error()}
}
