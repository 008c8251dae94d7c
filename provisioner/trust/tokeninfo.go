package trust

import (
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
)

// TokenInfo describes a used token, without its secrets.
type TokenInfo struct {
	ID         jwt.TokenID    `json:"tid"`
	Signer     jwt.SignerID   `json:"signer"`
	SignerName string         `json:"signer_name"`
	JTI        string         `json:"jti,omitempty"`  // cut to [MaxJTIBytes]
	Uses       int            `json:"uses,omitempty"` // 0: unlimited
	Identities []wire.Pattern `json:"identities,omitempty"`
	Site       jwt.Site       `json:"site,omitempty"`
	IssuedAt   time.Time      `json:"issued_at,omitzero"`
	ExpiresAt  time.Time      `json:"expires_at,omitzero"` // zero: never
	FirstSeen  time.Time      `json:"first_seen,omitzero"` // zero if revoked before any use
}

// MaxJTIBytes bounds the stored part of a jti, which the signer chooses.
const MaxJTIBytes = 128

// NewTokenInfo describes a token.
func NewTokenInfo(v *jwt.Verified, seen time.Time) *TokenInfo {
	return &TokenInfo{
		ID:         v.ID,
		Signer:     v.Signer,
		SignerName: v.SignerName,
		JTI:        events.Cut(v.JTI, MaxJTIBytes),
		Uses:       v.Limits.Uses,
		Identities: v.Limits.Identities,
		Site:       v.Limits.Site,
		IssuedAt:   v.IssuedAt.UTC(),
		ExpiresAt:  v.Expiry().UTC(),
		FirstSeen:  seen,
	}
}
