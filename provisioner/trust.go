package provisioner

import (
	"context"
	"fmt"
	"time"

	"muster/internal/wire"
)

// TrustStore is the part of a [Store] that says whom not to trust any more. The
// methods that read follow a log: given the place of what was read last, they
// return what comes next, or nil and 0 if there is nothing.
type TrustStore interface {
	RevocationStore
	CRLStore

	// Certificates returns every certificate that the kept history of the record
	// of id names, each once.
	Certificates(ctx context.Context, id wire.Identity) ([]*Issued, error)
}

// A RevocationStore is a log of revocations that only grows.
type RevocationStore interface {
	// NextRevocation returns the first entry after the given place. What it
	// returns has passed [Revocation.Check].
	NextRevocation(ctx context.Context, after Sequence) (*Revocation, Sequence, error)

	// Revocations calls each for the entries after the given place, in their order, and
	// stops at the first error of each, which it returns. It may miss the newest ones,
	// and none before one that it has called each for. They have passed [Revocation.Check].
	Revocations(ctx context.Context, after Sequence, each func(*Revocation, Sequence) error) error

	// AppendRevocation writes an entry and returns its place once it is on disk.
	// After an error it may be written or may yet be; writing it again is
	// harmless.
	AppendRevocation(ctx context.Context, r *Revocation) (Sequence, error)

	// SupplementRevocation is AppendRevocation for an entry about a node, if the newest
	// message about that is still at after: else it writes nothing and returns [ErrConflict],
	// also if it comes late.
	SupplementRevocation(ctx context.Context, r *Revocation, after Sequence) (Sequence, error)
}

// A CRLStore keeps the newest CRL of each issuer.
type CRLStore interface {
	// CRL returns the newest CRL of the issuer if its revision is later than
	// after, else nil and 0. It has passed [CRL.Check].
	CRL(ctx context.Context, issuer string, after Revision) (*CRL, Revision, error)

	// PutCRL writes a CRL as it is, provided that the newest revision of its issuer's is
	// still after. It returns nil once the write is on disk and [ErrConflict] if
	// it was not made. After any other error it may be written or may yet be.
	PutCRL(ctx context.Context, c *CRL, after Revision) (Revision, error)
}

// The versions of a CRL entry's JSON form: with the list, and with its signature alone.
const (
	CRLSchema         = 1
	CRLSchemaUnlisted = 2
)

// A CRL is a signed list of revoked certificates, with what is needed to make
// the next one.
type CRL struct {
	Schema     int       `json:"schema"`
	Issuer     string    `json:"issuer"` // key identifier, lower-case hex
	Number     uint64    `json:"number"`
	DER        []byte    `json:"der,omitempty"` // of schema 2 the store has none
	ThisUpdate time.Time `json:"this_update"`   // when it was signed; the list itself says crlSkew earlier
	NextUpdate time.Time `json:"next_update"`
	Through    Sequence  `json:"through"` // the revocations up to this one are covered

	// Of schema 2: certificates that had ended before Since are not listed, and what is
	// signed. With the log of revocations that makes the list.
	Since     time.Time `json:"since,omitzero"`
	Signature []byte    `json:"signature,omitempty"`
}

// Check reports what about a CRL of the store cannot be.
func (c *CRL) Check() error {
	switch {
	case c.Schema == CRLSchema && len(c.DER) > 0, c.Schema == CRLSchemaUnlisted && len(c.Signature) > 0 && len(c.DER) == 0:
		return nil
	}
	return fmt.Errorf("CRL of schema %d with a list of %d bytes and a signature of %d", c.Schema, len(c.DER), len(c.Signature))
}

// stored is the form of a CRL that the store gets.
func (c *CRL) stored() *CRL {
	if c.Schema == CRLSchema {
		return c
	}
	s := *c
	s.DER = nil
	return &s
}
