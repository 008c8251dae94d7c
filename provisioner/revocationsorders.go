package provisioner

import (
	"time"

	"muster/internal/wire"
)

// Outstanding returns the revocation that keeps out an identity whose record is r, which may be nil; nil if there is none.
func (r *Revocations) Outstanding(id wire.Identity, record *Record) *Revocation {
	return r.outstanding(id, record)
}

// NewestAbout returns the time of the newest entry that took the identity's name away, the zero time if there is none.
func (r *Revocations) NewestAbout(id wire.Identity) time.Time {
	if newest := r.standing(id); newest.Revocation != nil {
		return newest.At
	}
	return time.Time{}
}

// Err says what the entry revoked, for operators.
func (r *Revocation) Err() error { return r.cause() }
