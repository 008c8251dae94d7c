package provisioner

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/provisioner/orders"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
)

// A Reason says why a key may have an identity.
type Reason string

// The reasons. A key that is not in the lineage needs one of the last four.
const (
	ReasonNew        Reason = "new"        // no record, or retired
	ReasonReplay     Reason = "replay"     // the key of a live certificate
	ReasonContinue   Reason = "continue"   // a key of the lineage, without a live certificate
	ReasonContinuity Reason = "continuity" // another key, with a signature by a key of the lineage
	ReasonGrant      Reason = "grant"      // another key, admitted once by an operator
	// ReasonRenew is any key, with the node's session and a signature by its live certificate's key.
	ReasonRenew Reason = "renew"

	// ReasonOneTimeToken is another key with a single-use token for exactly this identity.
	ReasonOneTimeToken Reason = "one_time_token"
)

// Reasons has all reasons.
var Reasons = []Reason{ReasonNew, ReasonReplay, ReasonContinue, ReasonContinuity, ReasonGrant, ReasonRenew,
	ReasonOneTimeToken}

// A claim is a request for an identity.
type claim struct {
	identity  wire.Identity
	keyHash   string
	vouching  string // hash of the proven continuity key, or ""
	token     *jwt.Verified
	grant     *orders.Grant // for this identity, or nil
	secret    string        // may be the grant's, or ""
	keep      bool          // see [Edge.Keep]
	requested time.Time
}

var errTaken = errors.New("the identity belongs to another key")

var errRevoked = errors.New("the identity is revoked")

// classify returns the reason, errTaken or errRevoked. It depends on its arguments only; r may be nil.
func classify(r *Record, c claim) (Reason, error) {
	switch state := StateOf(r); {
	case state == StateRevoked:
		// This comes before replay, since a revoked node has the right key.
		return "", errRevoked
	case state != StateNone && state != StateRetired:
		if reason := r.ownedBy(c); reason != "" {
			return reason, nil
		}
	case !r.secretGiven(c) && !r.Awaits():
		return ReasonNew, nil
	}
	switch {
	case r.secretGiven(c), reassignedBy(c.token, r, c.requested):
		return ReasonOneTimeToken, nil
	case r.grantedBy(c.grant, c.keyHash, c.requested):
		return ReasonGrant, nil
	}
	return "", errTaken
}

// ownedBy returns the reason of a key that owns the identity, or that such a key vouches for, or "".
func (r *Record) ownedBy(c claim) Reason {
	for _, i := range []*Issued{r.Next, r.Current} {
		// A replaced key is live until the new key confirms, but gets no offers.
		if i.valid(c.requested) && i.KeyHash == c.keyHash && slices.Contains(r.Lineage, c.keyHash) {
			return ReasonReplay
		}
	}
	switch {
	case slices.Contains(r.Lineage, c.keyHash):
		return ReasonContinue
	case c.vouching != "" && slices.Contains(r.Lineage, c.vouching):
		return ReasonContinuity
	}
	return ""
}

// Awaits reports whether the name was retired and is not free. r may be nil.
func (r *Record) Awaits() bool { return StateOf(r) == StateRetired && r.Awaiting }

// secretGiven reports whether the claim has the secret of its grant, and the grant can be used.
func (r *Record) secretGiven(c claim) bool {
	g := c.grant
	return g.Holds(c.secret) && g.Open(c.requested) && (r == nil || r.Grant != g.ID) &&
		(g.KeyHash == "" || g.KeyHash == c.keyHash)
}

// reassignedBy reports whether the token is for one use, names exactly the record's identity and was signed after the
// record's newest offer. An earlier token may be on an old disk image.
//
// A token of the same second counts as earlier, and one from the future as none. A second key cannot use the token: the
// first use made a newer offer.
func reassignedBy(t *jwt.Verified, r *Record, now time.Time) bool {
	if t == nil || t.Limits.Uses != 1 || len(t.Limits.Identities) != 1 ||
		string(t.Limits.Identities[0]) != string(r.Identity) {
		return false
	}
	if t.IssuedAt.After(now.Add(jwt.NotBeforeLeeway)) {
		return false
	}
	issued := t.IssuedAt.Truncate(time.Second)
	for _, i := range []*Issued{r.Current, r.Next} {
		if i != nil && !issued.After(i.OfferedAt) {
			return false
		}
	}
	return r.Current != nil || r.Next != nil
}

func vouchingKey(r *wire.EnrollRequest) (string, error) {
	if r.Continuity == nil {
		return "", nil
	}
	pub, err := x509.ParsePKIXPublicKey(r.Continuity.PublicKey)
	if err != nil {
		return "", fmt.Errorf("continuity: public key: %w", err)
	}
	if _, err := ca.KeyType(pub); err != nil {
		return "", fmt.Errorf("continuity: %w", err)
	}
	if err := wire.CheckSignature(pub, wire.ContinuityDigest(r.ID, r.Identity, r.CSR),
		r.Continuity.Signature); err != nil {
		return "", fmt.Errorf("continuity: %w", err)
	}
	return ca.KeyHash(pub)
}
