package testbed

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"muster/internal/seal"
	"muster/jwt"
)

// Claims returns the claims of a good token of this fleet.
func (f *Fleet) Claims() jwt.Claims {
	now := f.Clock.Now().UTC().Truncate(time.Second)
	c := jwt.Claims{
		Token: Secret, Brokers: f.URL(), Default: true, Organization: "choria", Purpose: jwt.Purpose,
		Issuer: "test", Subject: jwt.Purpose, JTI: jwt.NewJTI(), IssuedAt: now, NotBefore: now, ExpiresAt: now.Add(24 * time.Hour),
	}
	return c
}

// Token signs a good token of this fleet, changed by edit if that is not nil.
func (f *Fleet) Token(edit func(*jwt.Claims)) string {
	f.t.Helper()
	c := f.Claims()
	if edit != nil {
		edit(&c)
	}
	text, err := jwt.Sign(f.signer, c)
	if err != nil {
		f.t.Fatal(err)
	}
	limits, err := c.Limits()
	if err == nil && limits.Uses > 0 {
		f.limitedToken(text)
	}
	if err == nil && limits.Seal != "" {
		f.noteSealed(text)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.tokens) < maxTokens {
		f.tokens = append(f.tokens, text)
	}
	return text
}

// noteSealed remembers a token that is to be sealed, for [Fleet.Check].
func (f *Fleet) noteSealed(text string) {
	f.t.Helper()
	verifier, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: []jwt.Signer{{Key: f.signer.Public()}}, Now: f.Clock.Now})
	if err != nil {
		f.t.Fatal(err)
	}
	v, err := verifier.Verify(text)
	if err != nil {
		return // one that nobody gets anything with
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sealed == nil {
		f.sealed = make(map[jwt.TokenID]bool)
	}
	f.sealed[v.ID] = true
}

// Seal has a token ask for sealed enrollment, with the fleet's newest seal key.
// It is for [Fleet.Token], and keeps the other limits that the token has.
func (f *Fleet) Seal(c *jwt.Claims) {
	f.t.Helper()
	l, err := c.Limits()
	if err != nil {
		f.t.Fatal(err)
	}
	l.Seal = f.SealKey().String()
	if err := c.SetLimits(l); err != nil {
		f.t.Fatal(err)
	}
}

// SealKey returns the public key in the setup's seal.pub.
func (f *Fleet) SealKey() seal.PublicKey {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.Dir, "seal.pub"))
	if err != nil {
		f.t.Fatal(err)
	}
	key, err := seal.ParsePublicKey(strings.TrimSpace(string(b)))
	if err != nil {
		f.t.Fatal(err)
	}
	return key
}
