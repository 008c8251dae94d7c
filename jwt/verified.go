package jwt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"muster/internal/wire"
)

// A TokenID is what a token is counted and revoked by: 32 lower-case hex
// digits, see [Verified].
type TokenID string

// Verified is what a trusted signer says in a token. It is authentic; that the
// sender is the node it claims to be is not said here, see [Verified.Admits].
// Treat its maps and slices as read-only: they are shared with later results
// for the same text.
type Verified struct {
	Claims
	Limits Limits // the token's own, from the claim extensions

	// ID is the token's id for counting and revoking. It is the first 32 hex
	// digits of the SHA-256 over
	//
	//	muster token id v1 \n <Signer> \n jti \n <claim jti>
	//
	// or, where there is no jti, over the same with "input" and the signing
	// input (header and claims) instead. The spaces are not part of it. It
	// does not depend on the signature, since the holder of a token signed with
	// ES256 can make a second signature that is as good, nor is it the jti
	// itself, which may hold anything.
	ID TokenID

	Signer     SignerID // whose key verified the signature
	SignerName string   // what operators call them, never empty

	by    *signer
	terms json.RawMessage // encoded once per text, nil where nothing was verified
}

// ExtensionsJSON returns the claim extensions as one JSON object, nil if it is
// empty.
func (v *Verified) ExtensionsJSON() json.RawMessage {
	if len(v.Extensions) == 0 {
		return nil
	}
	b, _ := json.Marshal(v.Extensions) // what was decoded encodes again
	return b
}

// tokenID is described at [Verified].
func tokenID(by SignerID, c *compact) TokenID {
	kind, text := "jti", c.claims.JTI
	if text == "" {
		kind, text = "input", c.signingInput
	}
	sum := sha256.Sum256([]byte("muster token id v1\n" + string(by) + "\n" + kind + "\n" + text))
	return TokenID(hex.EncodeToString(sum[:])[:32])
}

// checkTimes checks what changes with time: the signer, then the token.
func (v *Verified) checkTimes(now time.Time) error {
	by := v.by
	if !by.NotBefore.IsZero() && now.Before(by.NotBefore) {
		return fmt.Errorf("%w: signer %q is valid from %s", ErrSignerExpired, by.Name, instant(by.NotBefore))
	}
	if !by.NotAfter.IsZero() && now.After(by.NotAfter) {
		return fmt.Errorf("%w: signer %q was valid until %s", ErrSignerExpired, by.Name, instant(by.NotAfter))
	}
	if end := v.Expiry(); !end.IsZero() && !now.Before(end) {
		return fmt.Errorf("%w: at %s", ErrExpired, instant(end))
	}
	if !v.NotBefore.IsZero() && now.Add(NotBeforeLeeway).Before(v.NotBefore) {
		return fmt.Errorf("%w: valid from %s", ErrNotYetValid, instant(v.NotBefore))
	}
	return nil
}

// Admits reports whether the token, and its signer, cover the identity at the
// site of the provisioner that asks; site is empty if it serves none. The
// error wraps [ErrIdentity] or [ErrSite]. No error does not mean that the
// sender is the node: every machine that holds the token could say so.
func (v *Verified) Admits(id wire.Identity, site Site) error {
	if !covers(v.Limits.Identities, id) {
		return fmt.Errorf("%w: %q, token is for %s", ErrIdentity, id, first(v.Limits.Identities))
	}
	if v.Limits.Site != "" && v.Limits.Site != site {
		return fmt.Errorf("%w: %q, token is for %q", ErrSite, site, v.Limits.Site)
	}
	if v.by == nil {
		return nil
	}
	if !covers(v.by.Identities, id) {
		return fmt.Errorf("%w: %q, signer %q may sign for %s", ErrIdentity, id, v.SignerName, first(v.by.Identities))
	}
	if len(v.by.Sites) > 0 && !slices.Contains(v.by.Sites, site) {
		return fmt.Errorf("%w: %q, signer %q may sign for %s", ErrSite, site, v.SignerName, first(v.by.Sites))
	}
	return nil
}

// covers reports whether one of the patterns selects id, or there are none.
func covers(patterns []wire.Pattern, id wire.Identity) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p wire.Pattern) bool { return p.Match(id) })
}

// LogValue implements [slog.LogValuer].
func (v Verified) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("token_id", string(v.ID)),
		slog.String("signer", v.SignerName),
		slog.Any("claims", v.Claims),
	)
}

// instant writes a time for people.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }
