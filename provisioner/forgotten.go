package provisioner

import "time"

// A trustMoment is when an entry about a signer, an operator or a pattern of the allow-list was made, and
// whether it takes trust away. The zero value stands for no entry.
type trustMoment struct {
	at      time.Time
	removed bool
}

func (e *SignerEntry) moment() trustMoment {
	if e == nil {
		return trustMoment{}
	}
	return trustMoment{e.At, e.Removed}
}

func (e *OperatorEntry) moment() trustMoment {
	if e == nil {
		return trustMoment{}
	}
	return trustMoment{e.At, e.Removed}
}

func (a *Allowance) moment() trustMoment {
	if a == nil {
		return trustMoment{}
	}
	return trustMoment{a.At, a.Removed}
}

// next returns the time of an entry that follows this one: now, but after it in
// any case. So the times of the entries about somebody say which is the last one,
// also where those who made them have clocks that differ; a restore goes by that.
func (m trustMoment) next(now time.Time) time.Time {
	if now.After(m.at) {
		return now
	}
	return m.at.Add(time.Second)
}

// lacks reports whether a journal whose newest entry about a signer, an operator or a
// pattern is this one has not got the one that the store has.
func (m trustMoment) lacks(stored trustMoment) bool {
	return m.at.IsZero() || stored.at.After(m.at) || stored.at.Equal(m.at) && stored.removed && !m.removed
}

// forgets reports whether a store whose newest entry about somebody is this one
// has forgotten one that the journal has: its files were put back to what they
// once were, or who wrote the journal died before the store had it. Of two of one
// second the removal is the last. Whoever the store knows nothing of, or only
// that they were removed, does not get in by the journal: an operator adds them
// again.
func (m trustMoment) forgets(journaled trustMoment) bool {
	if journaled.removed {
		return m.at.IsZero() || !m.removed && !journaled.at.Before(m.at)
	}
	return !m.at.IsZero() && !m.removed && journaled.at.After(m.at)
}
