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

// The reasons. An identity belongs to its keys: another key than the record's
// needs one of the last three.
const (
	ReasonNew        Reason = "new"        // never seen, or retired
	ReasonReplay     Reason = "replay"     // the key of a live certificate
	ReasonContinue   Reason = "continue"   // a key of the lineage, without a live certificate
	ReasonContinuity Reason = "continuity" // another key, vouched for by a key of the lineage
	ReasonGrant      Reason = "grant"      // another key, let in once by an operator
	ReasonRenew      Reason = "renew"      // any key, vouched for by a live certificate's over its own session

	// ReasonOneTimeToken is another key, let in by a token that is good for one
	// use and names exactly this identity, see [namesAnew].
	ReasonOneTimeToken Reason = "one_time_token"
)

// Reasons are all of them.
var Reasons = []Reason{ReasonNew, ReasonReplay, ReasonContinue, ReasonContinuity, ReasonGrant, ReasonRenew, ReasonOneTimeToken}

// A claim is who asks for an identity, with everything about it proven except
// that the identity is theirs.
type claim struct {
	identity  wire.Identity
	keyHash   string
	vouching  string // key hash of a proven continuity, "" without one
	token     *jwt.Verified
	grant     *orders.Grant // for this identity; nil if there is none
	requested time.Time
}

// errTaken says that an identity belongs to another key.
var errTaken = errors.New("the identity belongs to another key")

// errRevoked says that an identity has been revoked.
var errRevoked = errors.New("the identity is revoked")

// classify says on what ground the claim may have the identity of the record,
// which may be nil. It looks at nothing else, so that its table test is the
// whole rule. The error is errTaken or errRevoked.
func classify(r *Record, c claim) (Reason, error) {
	switch r.state() {
	case StateNone, StateRetired:
		return ReasonNew, nil
	case StateRevoked:
		// Before replay: a revoked node asks with the right key, too.
		return "", errRevoked
	}
	for _, i := range []*Issued{r.Next, r.Current} {
		// A key that a grant has replaced is none of the lineage's any more: its
		// certificate is live until the new one is confirmed, and nothing is
		// offered to it.
		if i.begun(c.requested) && i.KeyHash == c.keyHash && slices.Contains(r.Lineage, c.keyHash) {
			return ReasonReplay, nil
		}
	}
	switch {
	case slices.Contains(r.Lineage, c.keyHash):
		return ReasonContinue, nil
	case c.vouching != "" && slices.Contains(r.Lineage, c.vouching):
		return ReasonContinuity, nil
	case namesAnew(c.token, r, c.requested):
		return ReasonOneTimeToken, nil
	case r.grantedBy(c.grant, c.keyHash, c.requested):
		return ReasonGrant, nil
	}
	return "", errTaken
}

// namesAnew reports whether the token gives the identity of the record to
// another key: it is for one use, for this identity and no other, and was signed
// after the record's newest certificate was offered.
//
// A token that was signed earlier must not: it could have been left on an image
// or in a mailbox while the machine that now has the name was enrolled with
// another. The newest certificate is meant whether or not the node has confirmed
// it yet, so that the outcome does not depend on a confirmation that is late.
// Tokens count in whole seconds: one of the same second may have come before.
// One from the future would outlast every certificate, and is good for none.
//
// Another key cannot use the same token again: it is spent, and its use by the
// first key has made a certificate that is newer than the token.
func namesAnew(t *jwt.Verified, r *Record, now time.Time) bool {
	if t == nil || t.Limits.Uses != 1 || len(t.Limits.Identities) != 1 || string(t.Limits.Identities[0]) != string(r.Identity) {
		return false
	}
	if t.IssuedAt.After(now.Add(jwt.NotBeforeLeeway)) {
		return false
	}
	issued := t.IssuedAt.Truncate(time.Second)
	for _, i := range []*Issued{r.Current, r.Next} {
		if i == nil {
			continue
		}
		if !issued.After(i.OfferedAt) {
			return false
		}
	}
	return r.Current != nil || r.Next != nil
}

// vouchingKey checks the continuity of a request and returns the hash of the
// key that vouches, "" if there is no continuity. A continuity that does not
// verify is an error rather than none: nobody sends one by accident.
func vouchingKey(r *wire.EnrollRequest) (string, error) {
	if r.Continuity == nil {
		return "", nil
	}
	pub, err := x509.ParsePKIXPublicKey(r.Continuity.PublicKey)
	if err != nil {
		return "", fmt.Errorf("continuity: public key: %w", err)
	}
	// No node has had a certificate for a key of another kind, so none vouches.
	if _, err := ca.KeyType(pub); err != nil {
		return "", fmt.Errorf("continuity: %w", err)
	}
	if err := wire.CheckSignature(pub, wire.ContinuityDigest(r.ID, r.Identity, r.CSR), r.Continuity.Signature); err != nil {
		return "", fmt.Errorf("continuity: %w", err)
	}
	return ca.KeyHash(pub)
}
