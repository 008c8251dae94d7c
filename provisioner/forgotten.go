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

func (a *Allowance) moment() trustMoment {
	if a == nil {
		return trustMoment{}
	}
	return trustMoment{a.At, a.Removed}
}

// next returns the time of an entry that follows this one: now, but after it in
// any case.
func (m trustMoment) next(now time.Time) time.Time {
	if now.After(m.at) {
		return now
	}
	return m.at.Add(time.Second)
}

// A trustEntry is one about a signer or an operator.
type trustEntry interface {
	LogKey() string
	moment() trustMoment
}
