package waiting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
)

// Schema is the version of a key's JSON form.
const Schema = 1

// Bounds of what is kept of those who wait: whoever has a token can make up
// names, keys and facts. All chosen.
const (
	MaxReasons = 8   // each of policies.MaxReasonBytes at most
	MaxNames   = 16  // of each kind in the certificate request
	MaxText    = 253 // bytes of one of them, as long as an identity
)

// A Key is one that asked for an identity and has to wait: for an
// operator, or until the policy no longer puts it off. It is what the node
// presented when it asked last, which is proven but for the facts and the
// names in its certificate request. It holds no secret.
//
// It is a report that people decide on, never what a decision rests on: one
// that is lost comes again with the node's next try.
type Key struct {
	Schema   int           `json:"schema"`
	Identity wire.Identity `json:"identity"`
	KeyHash  string        `json:"key_hash"` // [ca.KeyHash]
	KeyType  string        `json:"key_type"`

	// Code says what it waits for: [wire.CodeApprovalPending] for an approval,
	// [wire.CodeDeferred] for the policy to think otherwise, and
	// [wire.CodeIdentityTaken] for the name, which is another key's.
	Code    wire.Code `json:"code"`
	Reasons []string  `json:"reasons,omitempty"` // the policy's words

	Names      []string          `json:"names,omitempty"`       // in its certificate request, other than the identity
	Facts      map[string]string `json:"facts,omitempty"`       // those that may be shown, see [provisioner.FactsConfig]
	FactsBytes int               `json:"facts_bytes,omitempty"` // of all that it sent

	Token      jwt.TokenID  `json:"tid,omitempty"`
	Signer     jwt.SignerID `json:"signer,omitempty"`
	SignerName string       `json:"signer_name,omitempty"`
	Source     string       `json:"source,omitempty"` // address of its connection
	Site       jwt.Site     `json:"site,omitempty"`   // of the broker that it reached
	Sealed     bool         `json:"sealed,omitempty"`
	Renewal    bool         `json:"renewal,omitempty"` // it is in the fleet, and asks for its next certificate
	Agent      string       `json:"agent,omitempty"`
	Policy     string       `json:"policy,omitempty"` // digest of the policy that decided

	Since     time.Time `json:"since"`      // when it asked first
	LastAsked time.Time `json:"last_asked"` // to within [waiterEvery]
	Asked     int       `json:"asked"`      // how often, to within the asks of [waiterEvery]
}

// holder is the key and the identity that wait.
func (w *Key) holder() Holder { return Holder{w.KeyHash, w.Identity} }

// Check reports what about a waiter cannot be.
func (w *Key) Check() error {
	if w.Schema != Schema {
		return fmt.Errorf("waiter %q: schema %d, want %d", w.Identity, w.Schema, Schema)
	}
	if _, err := wire.ParseIdentity(string(w.Identity)); err != nil {
		return fmt.Errorf("waiter: %w", err)
	}
	if !trust.IsSHA256(w.KeyHash) {
		return fmt.Errorf("waiter %q: key hash %.80q", w.Identity, w.KeyHash)
	}
	return nil
}

// ErrTooMany means that so many keys wait for one identity that another one is
// not listed.
var ErrTooMany = errors.New("too many keys wait for this name")

// A Store keeps the keys that wait: bounded, so that the oldest go where too many
// wait. All provisioners share it.
type Store interface {
	// Waiter returns the entry of a key, or nil and 0 if it does not wait.
	Waiter(ctx context.Context, id wire.Identity, keyHash string) (*Key, trust.Revision, error)

	// PutWaiter writes an entry under compare-and-set. The error is [trust.ErrConflict] if
	// another one came before it, and [ErrTooMany] if too many wait already.
	PutWaiter(ctx context.Context, w *Key, after trust.Revision) error

	// DropWaiter removes an entry, unless it was written again after the revision
	// upTo: who has asked since goes on waiting. One that is not there is no error,
	// and 0 removes none.
	DropWaiter(ctx context.Context, id wire.Identity, keyHash string, upTo trust.Revision) error

	// CountWaiters returns how many entries there are.
	CountWaiters(ctx context.Context) (int, error)

	// Waiters calls each for every entry, or for those of one identity if id is
	// not empty, and stops at the first error of each.
	Waiters(ctx context.Context, id wire.Identity, each func(*Key, trust.Revision) error) error
}
