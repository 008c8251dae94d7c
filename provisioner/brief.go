package provisioner

import (
	"cmp"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/facts"
)

// A Brief is the summary of a record in lists of nodes.
type Brief struct {
	Identity wire.Identity
	State    State
	Site     jwt.Site
	Token    jwt.TokenID
	Policy   string
	Reason   Reason
	Agent    string
	Facts    facts.Facts
	Cloned   bool
	Fault    string // cause, or ""
	Offered  bool   // the newest certificate is not confirmed yet

	Superseded bool

	// Serial and Expires are the confirmed certificate's, or the offer's if none is confirmed.
	Serial  string
	Expires time.Time

	FirstEnrolled time.Time
	Owned         time.Time
	Updated       time.Time
}

// Brief returns a summary that shares the record's memory.
func (r *Record) Brief() Brief {
	b := Brief{
		Identity:      r.Identity,
		State:         r.State,
		Site:          r.Site,
		Token:         r.Token,
		Policy:        r.Decision.Policy,
		Reason:        r.Decision.Reason,
		Agent:         r.Agent,
		Facts:         r.Facts,
		Cloned:        r.Cloned != nil,
		Fault:         r.Fault.Text(),
		Offered:       r.Next != nil,
		Superseded:    len(r.Superseded) > 0,
		FirstEnrolled: r.FirstEnrolledAt,
		Owned:         r.OwnedSince,
		Updated:       r.UpdatedAt,
	}
	if i := cmp.Or(r.Current, r.Next); i != nil {
		b.Serial, b.Expires = i.Serial, i.NotAfter
	}
	return b
}

// DecodeBrief returns the summary of a record in JSON. The error wraps [trust.ErrRecord].
func DecodeBrief(record []byte) (Brief, error) {
	var r Record
	err := wire.DecodeKnown(record, &r)
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		return Brief{}, fmt.Errorf("%w: %w", trust.ErrRecord, err)
	}
	return r.Brief(), nil
}
