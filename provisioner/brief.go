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

// A Brief is what a list of nodes says of a record.
type Brief struct {
	Identity wire.Identity
	State    State
	Site     jwt.Site
	Token    jwt.TokenID // with which it last enrolled; empty if none is known
	Policy   string      // digest of the policy that decided last
	Reason   Reason      // on what ground it was last let in
	Agent    string
	Facts    facts.Facts
	Cloned   bool // two live machines speak for it
	Offered  bool // the newest certificate is not confirmed yet

	// Superseded is that there are certificates that were live, are not any more, and may not
	// have expired.
	Superseded bool

	// Serial and Expires are of the certificate in use: the one that the node has
	// confirmed, else the one that it was offered. Empty and zero if there is none.
	Serial  string
	Expires time.Time

	FirstEnrolled time.Time
	Owned         time.Time // see [Record.OwnedSince]
	Updated       time.Time // when the record was written
}

// Brief returns what the record says in short. It shares the record's texts.
func (r *Record) Brief() Brief {
	b := Brief{
		Identity: r.Identity, State: r.State, Site: r.Site, Token: r.Token, Policy: r.Decision.Policy, Reason: r.Decision.Reason,
		Agent: r.Agent, Facts: r.Facts, Cloned: r.Cloned != nil, Offered: r.Next != nil, Superseded: len(r.Superseded) > 0,
		FirstEnrolled: r.FirstEnrolledAt, Owned: r.OwnedSince, Updated: r.UpdatedAt,
	}
	if i := cmp.Or(r.Current, r.Next); i != nil {
		b.Serial, b.Expires = i.Serial, i.NotAfter
	}
	return b
}

// DecodeBrief returns what the JSON form of a record says in short. The error wraps [trust.ErrRecord].
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
