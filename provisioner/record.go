package provisioner

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/facts"
	"muster/provisioner/trust"
)

// RecordSchema is the version of the JSON form.
const RecordSchema = 1

// MaxLineage bounds the lineage. With a new key every 20 days, 32 keys last more than 20 months.
const MaxLineage = 32

// A State is the state of an identity.
type State string

// The states of a record.
const (
	StateNone        State = "none"        // no record
	StateEnrolled    State = "enrolled"    // has an offer, not confirmed
	StateProvisioned State = "provisioned" // has confirmed a certificate and configuration
	StateRevoked     State = "revoked"     // refused until an operator retires it
	StateRetired     State = "retired"     // free for any key again, unless [Record.Awaiting]
)

// moves is the table of docs/architecture.md.
var moves = map[State][]State{
	StateNone:        {StateEnrolled},
	StateEnrolled:    {StateEnrolled, StateProvisioned, StateRevoked, StateRetired},
	StateProvisioned: {StateProvisioned, StateRevoked, StateRetired},
	StateRevoked:     {StateRetired},
	StateRetired:     {StateEnrolled, StateRetired},
}

// CanMove reports whether state to may follow state from.
func CanMove(from, to State) bool { return slices.Contains(moves[from], to) }

// A Record is the durable state of one identity. It is written whole, under compare-and-set, and never changed in
// place: earlier revisions are the history. Its only secret is CommandKey.
type Record struct {
	Schema   int           `json:"schema"`
	Identity wire.Identity `json:"identity"`
	State    State         `json:"state"`

	// Protocol is the one over which the identity is enrolled.
	Protocol Protocol `json:"protocol,omitempty"`

	// Awaiting: the retired name is not free. Another key needs a one-time secret, a grant or an approval.
	Awaiting bool `json:"awaiting,omitempty"`

	// Extensions are Puppet's that the certificate request asked for, by name, unproven.
	Extensions map[string]string `json:"extensions,omitempty"`

	// Current is confirmed, Next the newest offer. Either may be nil. No other certificate is admitted.
	Current *Issued `json:"current,omitempty"`
	Next    *Issued `json:"next,omitempty"`

	// Superseded are the former certificates that have not expired, oldest first. Revocations must name them.
	Superseded []trust.RevokedCertificate `json:"superseded,omitempty"`

	// Lineage holds the hashes of the keys that own the identity, newest last. A grant, a one-time token or a
	// retirement starts a new lineage.
	Lineage []string `json:"lineage"`

	// Attempt is unique to the request that wrote this revision.
	Attempt string `json:"attempt"`

	// Grant is the id of the last grant spent: a grant admits once.
	Grant string `json:"grant,omitempty"`

	// Approval is the last approval spent, or nil. Like Grant it is kept after a retirement.
	Approval *SpentApproval `json:"approval,omitempty"`

	// Revoked is the id of the newest revocation or retirement applied. It stays, so that the entry does not hit a
	// later owner.
	Revoked string `json:"revoked,omitempty"`

	// Operator ordered this revision, if not nil.
	Operator *trust.Cause `json:"operator,omitempty"`

	// Cloned is nil if no clone was noticed since OwnedSince.
	Cloned *Cloned `json:"cloned,omitempty"`

	// Fault is nil if the node reports none.
	Fault *Fault `json:"fault,omitempty"`

	// OwnedSince is when the present or last owner got the identity.
	OwnedSince time.Time `json:"owned_since"`

	// Recovered is not nil if the node came back in a recovery.
	Recovered *Recovered `json:"recovered,omitempty"`

	// Inputs of the last decision.
	Token  jwt.TokenID  `json:"tid,omitempty"`
	Signer jwt.SignerID `json:"signer,omitempty"`
	Site   jwt.Site     `json:"site,omitempty"`
	Source string       `json:"source,omitempty"` // of the connection

	// Terms are the token's claims without secrets, for the policy of renewals.
	Terms json.RawMessage `json:"terms,omitempty"`

	// CommandKey proves commands to the node ([wire.CommandKey]). It is not shown to operators.
	CommandKey []byte `json:"command_key,omitempty"`

	Agent string `json:"agent,omitempty"`
	Boot  string `json:"boot,omitempty"`

	// Facts are from the last request, unproven.
	Facts facts.Facts `json:"facts,omitempty"`

	Decision Decided `json:"decision"`

	FirstEnrolledAt time.Time `json:"first_enrolled_at"`
	ProvisionedAt   time.Time `json:"provisioned_at,omitzero"`
	UpdatedAt       time.Time `json:"updated_at"`
}

// AppliedRevocation returns r.Revoked; r may be nil.
func (r *Record) AppliedRevocation() string {
	if r == nil {
		return ""
	}
	return r.Revoked
}

// Decided is the decision behind a revision.
type Decided struct {
	Reason  Reason   `json:"reason"`
	Notes   []string `json:"notes,omitempty"`  // the policy's reasons
	Policy  string   `json:"policy,omitempty"` // digest
	Allowed string   `json:"allowed,omitempty"`
}

// Issued is a certificate with the digest of its offer.
type Issued struct {
	Serial    string    `json:"serial"`   // lower-case hex
	KeyHash   string    `json:"key_hash"` // [ca.KeyHash]
	DER       []byte    `json:"der"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	Digest    string    `json:"digest"` // [wire.Digest] of the offer
	OfferedAt time.Time `json:"offered_at"`
}

// live reports whether the certificate, which may be nil, has not expired.
func (i *Issued) live(now time.Time) bool { return i != nil && now.Before(i.NotAfter) }

// If a clock was ahead at issue, a live certificate is not valid yet. It is revoked like any other.
func (i *Issued) valid(now time.Time) bool { return i.live(now) && !now.Before(i.NotBefore) }

// Live returns the serials that are admitted to the fleet.
func (r *Record) Live(now time.Time) []string {
	if r == nil || r.State == StateRevoked || r.State == StateRetired {
		return nil
	}
	var serials []string
	for _, i := range []*Issued{r.Current, r.Next} {
		if i.live(now) && !slices.Contains(serials, i.Serial) {
			serials = append(serials, i.Serial)
		}
	}
	return serials
}

// StateOf returns the state of a record, which may be nil.
func StateOf(r *Record) State {
	if r == nil {
		return StateNone
	}
	return r.State
}

// addKey drops the oldest keys beyond [MaxLineage], but none of certificates or of hold: their nodes could not come
// back.
func (r *Record) addKey(keyHash string, hold ...string) {
	hold = append(slices.Clone(hold), keyHash)
	for _, i := range []*Issued{r.Current, r.Next} {
		if i != nil {
			hold = append(hold, i.KeyHash)
		}
	}
	r.Lineage = slices.DeleteFunc(slices.Clone(r.Lineage), func(h string) bool { return h == keyHash })
	r.Lineage = append(r.Lineage, keyHash)
	excess := len(r.Lineage) - MaxLineage
	r.Lineage = slices.DeleteFunc(r.Lineage, func(h string) bool {
		if excess <= 0 || slices.Contains(hold, h) {
			return false
		}
		excess--
		return true
	})
}

// Check returns why the record is invalid, or nil. Another version may have written it.
func (r *Record) Check() error {
	switch {
	case r.Schema != RecordSchema:
		return fmt.Errorf("record of %q: schema %d, want %d", r.Identity, r.Schema, RecordSchema)
	case moves[r.State] == nil || r.State == StateNone:
		return fmt.Errorf("record of %q: unknown state %q", r.Identity, r.State)
	case r.State == StateEnrolled && (r.Next == nil || r.Current != nil):
		return fmt.Errorf("record of %q: state enrolled, want a next and no current certificate", r.Identity)
	case r.State == StateProvisioned && r.Current == nil:
		return fmt.Errorf("record of %q: state provisioned, want a current certificate", r.Identity)
	case r.Next != nil && len(r.Lineage) == 0:
		return fmt.Errorf("record of %q: it has an offer but no lineage", r.Identity)
	case r.Attempt == "":
		return fmt.Errorf("record of %q: it has no attempt", r.Identity)
	}
	return nil
}

// A SpentApproval is an approval that admitted a record's key.
type SpentApproval struct {
	ID string    `json:"id"`
	At time.Time `json:"at"` // when it was spent
	By string    `json:"by,omitempty"`

	KeyHash string `json:"key_hash,omitempty"`
}

// ErrChanged means that the node has changed since the operator saw it. It wraps [trust.ErrState].
var ErrChanged = fmt.Errorf("%w: changed since it was shown", trust.ErrState)

// A Precondition is the state of a record that an order requires. A zero member sets no condition.
type Precondition struct {
	Revision   trust.Revision `json:"revision,omitempty"`   // of the record
	OwnedSince time.Time      `json:"owned_since,omitzero"` // [Record.OwnedSince], compared by the second
}

// Check returns [ErrChanged] if the newest record, or nil, does not meet the precondition.
func (s Precondition) Check(r *Record, at trust.Revision) error {
	switch {
	case s == Precondition{}:
		return nil
	case r == nil:
		return fmt.Errorf("%w: there is no record", ErrChanged)
	case !s.OwnedSince.IsZero() && r.OwnedSince.Unix() != s.OwnedSince.Unix():
		return fmt.Errorf("%w: another machine has had the name since %s", ErrChanged,
			r.OwnedSince.UTC().Format(time.RFC3339))
	case s.Revision != 0 && s.Revision != at:
		return fmt.Errorf("%w: the record was written at %s", ErrChanged, r.UpdatedAt.UTC().Format(time.RFC3339))
	}
	return nil
}
