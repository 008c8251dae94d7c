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

// Schema is the version of the JSON form.
const Schema = 1

// Bounds, since token holders can invent names, keys and facts.
const (
	MaxReasons = 8   // of policies.MaxReasonBytes
	MaxNames   = 16  // of each kind in the certificate request
	MaxText    = 253 // bytes, as an identity
)

// A Key is a pending key with its node's last request. Facts and the names in the certificate request are unproven. It
// holds no secret. A lost entry is written again at the node's next request.
type Key struct {
	Schema   int           `json:"schema"`
	Identity wire.Identity `json:"identity"`
	KeyHash  string        `json:"key_hash"` // [ca.KeyHash]
	KeyType  string        `json:"key_type"`

	// Fingerprint is the SHA-256 of a Puppet agent's request in hex, as the agent shows it.
	Fingerprint string `json:"fingerprint,omitempty"`

	// Code is [wire.CodeApprovalPending], [wire.CodeDeferred], [wire.CodeIdentityTaken] or [wire.CodeIdentityRevoked].
	Code    wire.Code `json:"code"`
	Reasons []string  `json:"reasons,omitempty"` // the policy's

	Names      []string          `json:"names,omitempty"`       // in the certificate request, without the identity
	Facts      map[string]string `json:"facts,omitempty"`       // see [provisioner.FactsConfig]
	FactsBytes int               `json:"facts_bytes,omitempty"` // of all facts

	Token      jwt.TokenID  `json:"tid,omitempty"`
	Signer     jwt.SignerID `json:"signer,omitempty"`
	SignerName string       `json:"signer_name,omitempty"`
	Source     string       `json:"source,omitempty"` // address of the connection
	Site       jwt.Site     `json:"site,omitempty"`   // of the node's broker
	Sealed     bool         `json:"sealed,omitempty"`
	Renewal    bool         `json:"renewal,omitempty"` // the node is in the fleet
	Agent      string       `json:"agent,omitempty"`
	Protocol   string       `json:"protocol,omitempty"` // of the request; absent: muster's
	Policy     string       `json:"policy,omitempty"`   // digest

	// In the store, LastAsked and Asked are up to a minute old; see [List.Update].
	Since     time.Time `json:"since"`          // first request
	LastAsked time.Time `json:"last_asked"`     // last request
	Asked     int       `json:"asked"`          // number of requests
	Gone      bool      `json:"gone,omitempty"` // no request for [GoneAfter]; not in the store
}

// Holder returns the key and its identity.
func (w *Key) Holder() Holder { return Holder{w.KeyHash, w.Identity} }

// brief returns a copy of what the shares and the times of the list need.
func (w *Key) brief() *Key {
	b := *w
	b.Reasons, b.Names, b.Facts = nil, nil, nil
	return &b
}

// Check returns what is invalid.
func (w *Key) Check() error {
	if w.Schema != Schema {
		return fmt.Errorf("pending key of %q: schema %d, want %d", w.Identity, w.Schema, Schema)
	}
	if _, err := wire.ParseIdentity(string(w.Identity)); err != nil {
		return fmt.Errorf("pending key: %w", err)
	}
	if !trust.IsSHA256(w.KeyHash) {
		return fmt.Errorf("pending key of %q: key hash %.80q, want a SHA-256 in hex", w.Identity, w.KeyHash)
	}
	return nil
}

// ErrTooMany means that a share of the list is used up, and the key is not on the list.
var ErrTooMany = errors.New("too many pending nodes")

// A Store keeps pending keys for all provisioners. At its limit it refuses new ones.
type Store interface {
	// Waiter returns the entry of a key, or nil and 0.
	Waiter(ctx context.Context, id wire.Identity, keyHash string) (*Key, trust.Revision, error)

	// PutWaiter writes an entry under compare-and-set, and returns after the acknowledgement. The error is
	// [trust.ErrConflict] after another write, or [trust.ErrStoreFull].
	PutWaiter(ctx context.Context, w *Key, after trust.Revision) error

	// DropWaiter removes an entry, unless it was written after the revision upTo: then the key has asked again. A
	// missing entry is no error; with upTo 0 nothing is removed.
	DropWaiter(ctx context.Context, id wire.Identity, keyHash string, upTo trust.Revision) error

	// Waiters calls each for every entry, or those of id if not empty, until an error.
	Waiters(ctx context.Context, id wire.Identity, each func(*Key, trust.Revision) error) error
}
