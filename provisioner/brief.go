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
	Owned         time.Time // see [Record.Owned]
	Updated       time.Time // when the record was written
}

// Brief returns what the record says in short. It shares the record's texts.
func (r *Record) Brief() Brief {
	b := Brief{
		Identity: r.Identity, State: r.State, Site: r.Site, Token: r.Token, Policy: r.Decision.Policy, Reason: r.Decision.Reason,
		Agent: r.Agent, Facts: r.Facts, Cloned: r.Cloned != nil, Offered: r.Next != nil, Superseded: len(r.Superseded) > 0,
		FirstEnrolled: r.FirstEnrolledAt, Owned: r.Owned(), Updated: r.UpdatedAt,
	}
	if i := cmp.Or(r.Current, r.Next); i != nil {
		b.Serial, b.Expires = i.Serial, i.NotAfter
	}
	return b
}

// brief is the part of a record's JSON form that a Brief is made of.
type brief struct {
	Schema   int           `json:"schema"`
	Identity wire.Identity `json:"identity"`
	State    State         `json:"state"`
	Current  *briefIssued  `json:"current"`
	Next     *briefIssued  `json:"next"`
	Cloned   *struct{}     `json:"cloned"`
	Before   []struct{}    `json:"superseded"`
	Token    jwt.TokenID   `json:"tid"`
	Site     jwt.Site      `json:"site"`
	Agent    string        `json:"agent"`
	Facts    facts.Facts   `json:"facts"`
	Decision struct {
		Reason Reason `json:"reason"`
		Policy string `json:"policy"`
	} `json:"decision"`
	OwnedSince      time.Time `json:"owned_since"`
	FirstEnrolledAt time.Time `json:"first_enrolled_at"`
	UpdatedAt       time.Time `json:"updated_at"`
}

type briefIssued struct {
	Serial   string    `json:"serial"`
	NotAfter time.Time `json:"not_after"`
}

// DecodeBrief returns what the JSON form of a record says in short, without decoding the rest. The error wraps
// [trust.ErrRecord].
func DecodeBrief(record []byte) (Brief, error) {
	var r brief
	if err := wire.DecodeKnown(record, &r); err != nil {
		return Brief{}, fmt.Errorf("%w: %w", trust.ErrRecord, err)
	}
	if r.Schema != RecordSchema || moves[r.State] == nil || r.State == StateNone {
		return Brief{}, fmt.Errorf("%w: of %q: schema %d in state %q, want schema %d", trust.ErrRecord, r.Identity, r.Schema, r.State, RecordSchema)
	}
	b := Brief{
		Identity: r.Identity, State: r.State, Site: r.Site, Token: r.Token, Policy: r.Decision.Policy, Reason: r.Decision.Reason,
		Agent: r.Agent, Facts: r.Facts, Cloned: r.Cloned != nil, Offered: r.Next != nil, Superseded: len(r.Before) > 0,
		FirstEnrolled: r.FirstEnrolledAt, Owned: owned(r.OwnedSince, r.FirstEnrolledAt), Updated: r.UpdatedAt,
	}
	for _, i := range []*briefIssued{r.Current, r.Next} {
		if i != nil && b.Serial == "" {
			b.Serial, b.Expires = i.Serial, i.NotAfter
		}
	}
	return b, nil
}
