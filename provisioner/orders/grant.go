package orders

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"time"

	"muster/internal/wire"
)

// A Grant lets another key take over an identity, once. The write of a record that names the grant spends it, so it is
// neither used twice nor lost. A newer grant replaces it.
type Grant struct {
	ID        string        `json:"id"`
	Identity  wire.Identity `json:"identity"`
	KeyHash   string        `json:"key_hash,omitempty"` // any other key if empty
	At        time.Time     `json:"at"`
	Owned     time.Time     `json:"owned,omitzero"` // [provisioner.Record.OwnedSince] when it was given
	ExpiresAt time.Time     `json:"expires_at"`

	// Reprovision: an order to provision a Choria server again gave it, for the only server with its name.
	Reprovision bool `json:"reprovision,omitempty"`

	// Secret is the SHA-256 in hex of a one-time secret ([NewSecret]): only a Puppet request with the secret uses the
	// grant, and also a name without a record. Empty: an operator's grant.
	Secret string `json:"secret,omitempty"`

	By  string `json:"by,omitempty"` // operator
	Why string `json:"why,omitempty"`
}

// LogKey is the grant's key in the log.
func (g *Grant) LogKey() string { return g.Identity.SubjectToken() }

// Check returns what is invalid.
func (g *Grant) Check() error {
	if _, err := wire.ParseIdentity(string(g.Identity)); err != nil {
		return fmt.Errorf("grant: %w", err)
	}
	if g.ID == "" {
		return fmt.Errorf("grant for %q without an id", g.Identity)
	}
	return nil
}

// Holds reports whether the text is the secret of the grant, which may be nil.
func (g *Grant) Holds(text string) bool {
	hash := wire.Sum([]byte(text))
	return g != nil && g.Secret != "" && subtle.ConstantTimeCompare([]byte(g.Secret), []byte(hash)) == 1
}

// Open reports whether the grant has not expired.
func (g *Grant) Open(now time.Time) bool { return now.Before(g.ExpiresAt) }

// NewSecret returns a one-time secret, 43 characters of base64url, and its hash for [Grant.Secret].
func NewSecret() (secret, hash string) {
	b := make([]byte, sha256.Size)
	_, _ = rand.Read(b) // never fails
	secret = base64.RawURLEncoding.EncodeToString(b)
	return secret, wire.Sum([]byte(secret))
}
