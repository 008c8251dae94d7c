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

// RecordSchema is the version of the record's JSON form. A record of another
// schema is not understood and makes the store unavailable for its identity.
const RecordSchema = 1

// MaxLineage bounds how many keys of an identity are remembered: with a new
// key at each renewal after 20 days, 32 keys are more than a year and a half.
const MaxLineage = 32

// A State is where an identity stands. The allowed moves are in [CanMove].
type State string

// The states of a record. An identity without a record is in [StateNone].
const (
	StateNone        State = "none"        // never enrolled
	StateEnrolled    State = "enrolled"    // has a certificate, has not confirmed it
	StateProvisioned State = "provisioned" // has confirmed a certificate and a configuration
	StateRevoked     State = "revoked"     // kept out until an operator retires it
	StateRetired     State = "retired"     // free for any key again
)

// moves is the state table of docs/architecture.md: every pair of states that
// two revisions of a record, one after the other, may have.
var moves = map[State][]State{
	StateNone:        {StateEnrolled},
	StateEnrolled:    {StateEnrolled, StateProvisioned, StateRevoked, StateRetired},
	StateProvisioned: {StateProvisioned, StateRevoked, StateRetired},
	StateRevoked:     {StateRetired},
	StateRetired:     {StateEnrolled},
}

// CanMove reports whether a record in state from may be followed by one in
// state to.
func CanMove(from, to State) bool { return slices.Contains(moves[from], to) }

// A Record is all that must not be forgotten about one identity. It is written
// whole, under compare-and-set on its revision, and never changed in place:
// its earlier revisions are the node's history. It holds no secret.
type Record struct {
	Schema   int           `json:"schema"`
	Identity wire.Identity `json:"identity"`
	State    State         `json:"state"`

	// Current is the certificate and configuration that the node has confirmed,
	// Next the one that it was last offered and has not confirmed. They are
	// all that is live: no other certificate of this identity is admitted.
	// Either may be nil.
	Current *Issued `json:"current,omitempty"`
	Next    *Issued `json:"next,omitempty"`

	// Superseded are the certificates that were current or next, are neither any
	// more and have not expired, the oldest first: a revocation has to name them,
	// also when the revisions that held them are gone.
	Superseded []trust.RevokedCertificate `json:"superseded,omitempty"`

	// Lineage holds the hashes of the keys that this identity belongs to, the
	// newest last, at most [MaxLineage]; those of Current and Next are never
	// dropped. A grant or a retirement starts a new
	// one: the keys before it lose their claim.
	Lineage []string `json:"lineage"`

	// Attempt is that of the request that made this revision, and of none before or
	// after it. With what is on offer it tells a write whose acknowledgement was lost
	// from the write of somebody else.
	Attempt string `json:"attempt"`

	// Grant is the id of the grant that was last spent, which makes grants
	// one-shot: see [orders.Grant].
	Grant string `json:"grant,omitempty"`

	// Approval is the approval that was last spent, nil if none ever was: see
	// [orders.Answer]. It stays over retirement, as Grant does.
	Approval *SpentApproval `json:"approval,omitempty"`

	// Revoked is the id of the newest revocation or retirement of the identity that this record
	// has followed. It stays over retirement and another enrollment, so that an old entry does
	// not hit the machine that has the name since.
	Revoked string `json:"revoked,omitempty"`

	// Operator says who ordered this revision, if an operator did.
	Operator *trust.Cause `json:"operator,omitempty"`

	// Cloned says that two live machines speak for the identity. Nil if none
	// were noticed since OwnedSince, when the identity last changed hands: when
	// it was enrolled anew, or given away by a grant or a one-time token.
	Cloned *Cloned `json:"cloned,omitempty"`

	// OwnedSince is since when the machine that has the identity has it, or had it last.
	OwnedSince time.Time `json:"owned_since"`

	// Recovered says that the node came back in a recovery; nil if not since it was enrolled.
	Recovered *Recovered `json:"recovered,omitempty"`

	// What the last decision was made on.
	Token  jwt.TokenID  `json:"tid,omitempty"`
	Signer jwt.SignerID `json:"signer,omitempty"`
	Site   jwt.Site     `json:"site,omitempty"`
	Source string       `json:"source,omitempty"` // address of the connection

	// Terms is what the token said, without its secrets ([jwt.Verified.Terms]):
	// a renewal brings no token, and its policy, template or helper has to come
	// to the same configuration. Empty on records of before there were any.
	Terms json.RawMessage `json:"terms,omitempty"`

	// CommandKey proves commands to the node: [wire.CommandKey] of its token's
	// secret. It is worth nothing without the right to send commands, and is not
	// for operators' eyes. Nil on records of before there were any.
	CommandKey []byte `json:"command_key,omitempty"`

	Agent string `json:"agent,omitempty"`
	Boot  string `json:"boot,omitempty"`

	// Facts are those of [FactsConfig] that the node said when it was last
	// answered: its own word. None on records of before there were any, and on
	// those that a provisioner wrote which keeps none.
	Facts facts.Facts `json:"facts,omitempty"`

	Decision Decided `json:"decision"`

	FirstEnrolledAt time.Time `json:"first_enrolled_at"`
	ProvisionedAt   time.Time `json:"provisioned_at,omitzero"`
	UpdatedAt       time.Time `json:"updated_at"`
}

// Followed returns the id of the entry that a record, which may be nil, has followed.
func (r *Record) Followed() string {
	if r == nil {
		return ""
	}
	return r.Revoked
}

// Decided says why the last revision is as it is.
type Decided struct {
	Reason  Reason   `json:"reason"`
	Notes   []string `json:"notes,omitempty"`  // the policy's own words, if any
	Policy  string   `json:"policy,omitempty"` // digest of the policy that decided
	Allowed string   `json:"allowed,omitempty"`
}

// Issued is a certificate together with the configuration it was offered with.
type Issued struct {
	Serial    string    `json:"serial"`   // lower-case hex
	KeyHash   string    `json:"key_hash"` // [ca.KeyHash]
	DER       []byte    `json:"der"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	Digest    string    `json:"digest"` // [wire.Digest] of what was offered
	OfferedAt time.Time `json:"offered_at"`
}

// live reports whether the certificate exists and has not expired at now.
func (i *Issued) live(now time.Time) bool { return i != nil && now.Before(i.NotAfter) }

// begun reports whether the certificate is live, and no clock that was ahead has it begin
// later: nobody takes it until then, so whoever has it needs another one. It may be
// presented one day all the same, and is superseded and revoked as any other.
func (i *Issued) begun(now time.Time) bool { return i.live(now) && !now.Before(i.NotBefore) }

// Live returns the serial numbers that are admitted to the fleet at now.
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

// state returns the state of a record that may be nil.
func (r *Record) state() State {
	if r == nil {
		return StateNone
	}
	return r.State
}

// remember puts the key at the end of the lineage. Should that be too long, the
// oldest key goes that is neither one of the certificates' nor one of those to
// hold: a node whose live key is forgotten could not come back.
func (r *Record) remember(keyHash string, hold ...string) {
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

// Check reports what about a record cannot be: it is run on every record that
// is read, since a store may hold what an older or a broken program wrote.
func (r *Record) Check() error {
	switch {
	case r.Schema != RecordSchema:
		return fmt.Errorf("record of %q: schema %d, want %d", r.Identity, r.Schema, RecordSchema)
	case moves[r.State] == nil || r.State == StateNone:
		return fmt.Errorf("record of %q: state %q", r.Identity, r.State)
	case r.State == StateEnrolled && (r.Next == nil || r.Current != nil):
		return fmt.Errorf("record of %q: enrolled, want next and no current certificate", r.Identity)
	case r.State == StateProvisioned && r.Current == nil:
		return fmt.Errorf("record of %q: provisioned, without a current certificate", r.Identity)
	case r.Attempt == "":
		return fmt.Errorf("record of %q: no attempt", r.Identity)
	}
	return nil
}

// A SpentApproval says which approval let a record's key in.
type SpentApproval struct {
	ID string    `json:"id"`
	At time.Time `json:"at"` // when it was spent
	By string    `json:"by,omitempty"`

	// KeyHash is the key that it was for: asking again because the reply was lost
	// takes no other approval.
	KeyHash string `json:"key_hash,omitempty"`
}
