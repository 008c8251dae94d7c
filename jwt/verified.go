package jwt

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"muster/internal/wire"
)

// A TokenID identifies a token for counting and revoking, see [Verified].
type TokenID string

// Verified is an authenticated token. Results for the same text share maps and slices: treat them as read-only.
type Verified struct {
	Claims
	Limits Limits

	// ID is the token's id for counting and revoking: the first 32 hex digits of the SHA-256 over
	//
	//	muster token id v1 \n <Signer> \n jti \n <claim jti>
	//
	// without the spaces. If there is no jti, "input" and the signing input (header and claims) replace "jti" and
	// the claim. The ID does not depend on the signature: the holder of an ES256 token can make a second valid
	// signature. It is not the jti itself, which can be any text.
	ID TokenID

	Signer     SignerID // key that verified the signature
	SignerName string   // never empty

	by    *signer
	terms json.RawMessage // encoded once per token; nil after [Recall]
}

// ExtensionsJSON returns the claim extensions as one JSON object, nil if empty.
func (v *Verified) ExtensionsJSON() json.RawMessage {
	if len(v.Extensions) == 0 {
		return nil
	}
	b, _ := json.Marshal(v.Extensions)
	return b
}

func tokenID(by SignerID, c *compact) TokenID {
	kind, text := "jti", c.claims.JTI
	if text == "" {
		kind, text = "input", c.signingInput
	}
	return TokenID(wire.Sum([]byte("muster token id v1\n" + string(by) + "\n" + kind + "\n" + text))[:32])
}

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
	if v.Limits.Uses > 0 && now.Add(issuedAheadLimit).Before(v.IssuedAt) {
		return fmt.Errorf("%w: for limited use, and issued at %s", ErrNotYetValid, instant(v.IssuedAt))
	}
	return nil
}

// Admits checks whether the token and its signer cover the identity at the site; site is empty if the provisioner has
// none. The error wraps [ErrIdentity] or [ErrSite]. This does not prove the sender's identity.
func (v *Verified) Admits(id wire.Identity, site Site) error {
	if !covers(v.Limits.Identities, id) {
		return fmt.Errorf("%w: %q, token is for %s", ErrIdentity, id, abbreviate(v.Limits.Identities))
	}
	if v.Limits.Site != "" && v.Limits.Site != site {
		return fmt.Errorf("%w: %q, token is for %q", ErrSite, site, v.Limits.Site)
	}
	if v.by == nil {
		return nil
	}
	if !covers(v.by.Identities, id) {
		return fmt.Errorf("%w: %q, signer %q may sign for %s", ErrIdentity, id, v.SignerName,
			abbreviate(v.by.Identities))
	}
	if len(v.by.Sites) > 0 && !slices.Contains(v.by.Sites, site) {
		return fmt.Errorf("%w: %q, signer %q may sign for %s", ErrSite, site, v.SignerName, abbreviate(v.by.Sites))
	}
	return nil
}

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

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

type terms struct {
	Signer string          `json:"signer"`
	Claims json.RawMessage `json:"claims"`
}

// Terms returns the token as JSON without cht, chpwd and unknown claims, for [Recall]. Treat it as read-only.
func (v *Verified) Terms() json.RawMessage {
	if v.terms != nil {
		return v.terms
	}
	c := v.Claims
	c.Token, c.Password, c.Extra = "", "", nil
	claims, err := c.encode()
	if err == nil {
		claims, err = json.Marshal(terms{Signer: v.SignerName, Claims: claims})
	}
	if err != nil {
		return nil // decoded claims always encode
	}
	return claims
}

// Recall restores a token from its [Verified.Terms]. The result is only as authentic as the caller's store. Times and
// the signer's limits are not checked again.
func Recall(id TokenID, signer SignerID, remembered json.RawMessage) (*Verified, error) {
	var t terms
	if err := json.Unmarshal(remembered, &t); err != nil {
		return nil, fmt.Errorf("terms of token %s: %w", id, err)
	}
	c, err := decodeClaims(t.Claims)
	if err != nil {
		return nil, fmt.Errorf("terms of token %s: %w", id, err)
	}
	limits, err := c.Limits()
	if err != nil {
		return nil, fmt.Errorf("terms of token %s: %w", id, err)
	}
	return &Verified{Claims: c, Limits: limits, ID: id, Signer: signer, SignerName: t.Signer}, nil
}

// Unverified is an unauthenticated token. It grants nothing.
type Unverified struct {
	Claims
	Limits    Limits // from extensions, not enforced
	Algorithm string
	Payload   wire.Secret // JSON object of claims as in the token
}

// Peek checks only the form of a token, as strictly as [Verifier.Verify]. The error wraps [ErrMalformed],
// [ErrUnsupported] or [ErrLimit].
func Peek(text string) (*Unverified, error) {
	c, err := parse(text)
	if err != nil {
		return nil, err
	}
	return &Unverified{Claims: c.claims, Limits: c.limits, Algorithm: c.alg, Payload: wire.Secret(c.payload)}, nil
}
