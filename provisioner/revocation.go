package provisioner

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"muster/internal/wire"
	"muster/jwt"
)

// RevocationSchema is the version of a revocation's JSON form. An entry of
// another schema is not understood, and nobody is admitted while there is one:
// it could be about anybody.
const RevocationSchema = 1

// A RevocationKind says what an entry takes back.
type RevocationKind string

// The kinds of entries.
const (
	RevokedToken RevocationKind = "token"   // a token: nobody enrolls with it any more
	RevokedNode  RevocationKind = "node"    // an identity with its keys and certificates
	RetiredNode  RevocationKind = "retired" // the certificates of an identity that is free again
)

// A Sequence is the place of an entry in one stream of the store, 1 for the
// first. 0 is before all.
type Sequence uint64

// pendingSequence stands for the place of an entry that the store does not have
// yet: after all.
const pendingSequence Sequence = math.MaxUint64

// A Revocation is one entry of the log of revocations. Entries are never
// changed or deleted; a retirement lifts what was said before it about the keys
// of its identity, and the certificates stay revoked.
type Revocation struct {
	Schema int            `json:"schema"`
	ID     string         `json:"id"` // unique; an entry that is in the log twice counts where it comes first
	Kind   RevocationKind `json:"kind"`
	At     time.Time      `json:"at"` // UTC, to the second
	By     string         `json:"by"`
	Why    string         `json:"why"`

	// Token is set in entries of kind token only.
	Token jwt.TokenID `json:"token,omitempty"`

	// Node is set in the other kinds, Certificates is what the identity's history
	// holds that had not expired, and Keys the hashes of all its keys. A
	// retirement has no keys: the identity is free, for these too.
	Node         wire.Identity        `json:"node,omitempty"`
	Certificates []RevokedCertificate `json:"certificates,omitempty"`
	Keys         []string             `json:"keys,omitempty"`
}

// A RevokedCertificate is what a CRL needs to know of a certificate.
type RevokedCertificate struct {
	Serial   string    `json:"serial"`    // lower-case hex
	NotAfter time.Time `json:"not_after"` // it leaves the CRL after that
	Issuer   string    `json:"issuer"`    // key identifier of its issuer, lower-case hex
}

// Check reports what about an entry cannot be. It is run on every entry that is
// read: one that is not understood must not pass for one that says nothing.
func (r *Revocation) Check() error {
	switch {
	case r.Schema != RevocationSchema:
		return fmt.Errorf("revocation %q: schema %d, want %d", r.ID, r.Schema, RevocationSchema)
	case r.ID == "":
		return errors.New("revocation without an id")
	case r.Kind == RevokedToken:
		return CheckTokenID(r.Token)
	case r.Kind != RevokedNode && r.Kind != RetiredNode:
		return fmt.Errorf("revocation %q: kind %q", r.ID, r.Kind)
	case r.Kind == RetiredNode && len(r.Keys) > 0:
		return fmt.Errorf("revocation %q: a retirement with keys", r.ID)
	}
	if _, err := wire.ParseIdentity(string(r.Node)); err != nil {
		return fmt.Errorf("revocation %q: %w", r.ID, err)
	}
	for _, c := range r.Certificates {
		if c.Serial == "" || strings.Trim(c.Serial, "0123456789abcdef") != "" {
			return fmt.Errorf("revocation %q: certificate %q, want lower-case hex", r.ID, c.Serial)
		}
	}
	return nil
}

// cause is the entry in words, for whoever reads why something was refused.
func (r *Revocation) cause() error {
	what := "token " + string(r.Token)
	switch r.Kind {
	case RevokedNode:
		what = string(r.Node)
	case RetiredNode:
		what = "a retired certificate of " + string(r.Node)
	}
	return fmt.Errorf("%s: revoked by %q at %s: %q", what, r.By, r.At.UTC().Format(time.RFC3339), r.Why)
}

// CheckTokenID reports why id cannot be a token's: they are 32 lower-case hex
// digits. The error wraps [ErrTokenID].
func CheckTokenID(id jwt.TokenID) error {
	if b, err := hex.DecodeString(string(id)); err != nil || len(b) != 16 || strings.ToLower(string(id)) != string(id) {
		return fmt.Errorf("%w: %.80q, want 32 lower-case hex digits", ErrTokenID, id)
	}
	return nil
}

// A Cause says who ordered something and why, for the history. Both are free
// text of at most 200 bytes; By is required.
type Cause struct {
	By  string `json:"by"`
	Why string `json:"why,omitempty"`
}

// maxCauseBytes bounds each text of a cause; chosen, a sentence and a ticket.
const maxCauseBytes = 200

// Check reports what is wrong with the cause. What passes reads the same, and passes again,
// once it was written as JSON: an entry of the store whose cause does not pass counts for
// nothing.
func (c Cause) Check() error {
	switch {
	case c.By == "":
		return errors.New("nobody is named as the one who asks")
	case len(c.By) > maxCauseBytes:
		return fmt.Errorf("the name of the one who asks has %d bytes, limit %d", len(c.By), maxCauseBytes)
	case len(c.Why) > maxCauseBytes:
		return fmt.Errorf("the reason has %d bytes, limit %d", len(c.Why), maxCauseBytes)
	case !utf8.ValidString(c.By) || !utf8.ValidString(c.Why): // JSON has three bytes for each that is not
		return fmt.Errorf("name %.80q and reason %.80q, want both in UTF-8", c.By, c.Why)
	}
	return nil
}
