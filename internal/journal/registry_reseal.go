package journal

import "context"

// reseal encrypts with the key that seals now what another key has encrypted, record by record, beside
// all other work. What a crash or an error leaves is done at the next Open; either way every record
// stays readable, with the old key or the new one.
func (j *Journal) reseal(ctx context.Context) {
	stale := j.reg.stale()
	if len(stale) == 0 {
		return
	}
	j.log.Info("secrets are being encrypted with the new key", "subscriptions", len(stale), "key", j.reg.box.seals)
	for i, lane := range stale {
		if err := j.reg.resealOne(ctx, lane); err != nil {
			if ctx.Err() == nil {
				j.log.Error("secrets are still encrypted with a previous key: keep it configured; the next start tries again",
					"subscriptions", len(stale)-i, "error", err)
			}
			return
		}
	}
	j.log.Info("no secret needs a previous key any more", "key", j.reg.box.seals)
}

// stale lists the lanes of the subscriptions that another key than the current one has encrypted.
func (r *Registry) stale() (lanes []uint32) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.subscriptions {
		if r.isStale(s) {
			lanes = append(lanes, s.Lane)
		}
	}
	return lanes
}

// isStale reports whether s was read as another key had encrypted it. What this process has written
// names no key: it is current.
func (r *Registry) isStale(s *subscriptionRecord) bool {
	return s.Sealed.Key != "" && s.Sealed.Key != r.box.seals
}

// resealOne stores one subscription as it is. Nothing is announced, for nothing has changed.
func (r *Registry) resealOne(ctx context.Context, lane uint32) error {
	leave, err := r.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	r.mu.RLock()
	now := r.subscriptions[lane]
	r.mu.RUnlock()
	if !r.isStale(now) {
		return nil
	}
	c := *now
	c.Sealed = sealed{}
	rec, err := r.storeAgain(ctx, &c)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.showLocked(rec.key(), rec)
	delete(r.unfinished, rec.key())
	return nil
}
