package journal

import (
	"context"
	"time"
)

// PositionAt returns the first position that was stored at or after the instant t; beyond the end of
// the log if there is none yet.
func (j *Journal) PositionAt(ctx context.Context, t time.Time) (Position, error) {
	m, ok, err := j.link.one(ctx, triggersStream, getRequest{StartTime: &t})
	if err != nil {
		return 0, err
	}
	if !ok {
		return position(j.last()+1, 0), nil
	}
	return position(m.seq, 0), nil
}

// last is the newest durable message of TRIGGERS; readers hear of it a moment after those who posted.
func (j *Journal) last() uint64 { return max(j.durable.at.Load(), Position(j.newest.Load()).Seq()) }
