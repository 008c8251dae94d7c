package jwt

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"
)

// NotBeforeLeeway is how far the provisioner's clock may be behind the one of
// the operator that has just signed a token with `nbf` now. It is the most that
// is usual (RFC 7519 section 4.1.5: a few minutes). There is none for `exp`:
// an end is a promise.
const NotBeforeLeeway = 60 * time.Second

// VerifierConfig configures [NewVerifier].
type VerifierConfig struct {
	// Signers are those whose tokens are accepted. Required, non-empty, and
	// no two with the same key, since they could have different limits.
	Signers []Signer

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time
}

// A Verifier authenticates tokens. It is safe for concurrent use.
type Verifier struct {
	signers []signer // read-only
	now     func() time.Time
	cache   *cache
}

// signer is a Signer that has been checked.
type signer struct {
	Signer
	id SignerID
}

// NewVerifier returns a Verifier that keeps its own copy of the signers, or an
// error that names everything wrong with them at once and wraps [ErrKey] where
// it is a key. To add or remove a signer, make another Verifier: what the old
// one remembers goes with it.
func NewVerifier(cfg VerifierConfig) (*Verifier, error) {
	var errs []error
	if len(cfg.Signers) == 0 {
		errs = append(errs, errors.New("no signers"))
	}
	v := &Verifier{now: cfg.Now, cache: newCache()}
	names := make(map[SignerID]string)
	for i, s := range cfg.Signers {
		id, err := Fingerprint(s.Key)
		if err != nil {
			errs = append(errs, fmt.Errorf("signer %d %q: %w", i+1, s.Name, err))
			continue
		}
		s.Name = cmp.Or(s.Name, string(id[:16]))
		if other, twice := names[id]; twice {
			errs = append(errs, fmt.Errorf("signer %d %q: has the same key as %q", i+1, s.Name, other))
			continue
		}
		names[id] = s.Name
		s.Identities, s.Sites = slices.Clone(s.Identities), slices.Clone(s.Sites)
		v.signers = append(v.signers, signer{s, id})
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("token verifier: %w", errors.Join(errs...))
	}
	if v.now == nil {
		v.now = time.Now
	}
	return v, nil
}

// Verify authenticates the text of a token and checks that it is a
// provisioning token whose time it is, and the signer's. The signature is
// verified once per text as long as the text is remembered; the times are checked on every call. Refused texts are not remembered,
// so that strangers cannot displace the fleet's. It neither counts uses nor
// knows revocations: the caller does, by ID.
//
// The error wraps exactly one of [ErrMalformed], [ErrUnsupported], [ErrLimit],
// [ErrUnknownSigner], [ErrSignature], [ErrSignerExpired], [ErrPurpose],
// [ErrExpired] and [ErrNotYetValid].
func (v *Verifier) Verify(text string) (*Verified, error) { return v.VerifyFrom(text, nil) }

// VerifyFrom is [Verifier.Verify] for a text that a stranger sent: the check of
// its signature is charged to their budget before it is made, and given back
// if the token turns out authentic. A text that is remembered costs nothing, so
// holders of a token that was good before do not feel what other senders spend. If
// the budget is spent, the error wraps [ErrBudget], and the text may be a good
// token. A nil budget is endless.
func (v *Verifier) VerifyFrom(text string, budget Budget) (*Verified, error) {
	// Also here, since a hash over megabytes is work as well, and texts are kept.
	if len(text) > MaxTokenBytes {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrMalformed, len(text), MaxTokenBytes)
	}
	key := cacheKey(sha256.Sum256([]byte(text)))
	found, ok := v.cache.get(key)
	if !ok {
		var err error
		if found, err = v.authenticate(text, budget); err != nil {
			return nil, err
		}
		v.cache.add(key, found)
	}
	if err := found.checkTimes(v.now()); err != nil {
		return nil, err
	}
	result := *found
	return &result, nil
}

// authenticate finds the signer of a text, and checks all that does not change
// with time.
func (v *Verifier) authenticate(text string, budget Budget) (*Verified, error) {
	if budget != nil && !budget.Charge() {
		return nil, ErrBudget
	}
	c, err := parse(text)
	if err != nil {
		return nil, err
	}
	by, err := v.signerOf(c)
	if err != nil {
		return nil, err
	}
	if !c.claims.Provisioning() {
		return nil, fmt.Errorf("%w: purpose %.40q, subject %.40q, want %q", ErrPurpose, c.claims.Purpose, c.claims.Subject, Purpose)
	}
	// Only here: what is authentic and no provisioning token is not remembered,
	// and would be checked for nothing as often as it is sent.
	if budget != nil {
		budget.Refund()
	}
	found := &Verified{
		Claims:     c.claims,
		Limits:     c.limits,
		ID:         tokenID(by.id, c),
		Signer:     by.id,
		SignerName: by.Name,
		by:         by,
	}
	found.terms = found.Terms()
	return found, nil
}

// signerOf returns the signer whose key verifies c. Tokens carry no key id,
// so all signers with a key for the algorithm are tried.
func (v *Verifier) signerOf(c *compact) (*signer, error) {
	var tried []*signer
	for i := range v.signers {
		s := &v.signers[i]
		if !slices.Contains(algorithmsOf(s.Key), c.alg) {
			continue
		}
		if checkSignature(c, s.Key) == nil {
			return s, nil
		}
		tried = append(tried, s)
	}
	switch len(tried) {
	case 0:
		return nil, fmt.Errorf("%w: algorithm %q, and none of the signers (%d) has a key for it", ErrUnknownSigner, c.alg, len(v.signers))
	case 1:
		return nil, fmt.Errorf("%w: not made with the key of signer %q, SHA-256 %s", ErrSignature, tried[0].Name, tried[0].id)
	default:
		return nil, fmt.Errorf("%w: none of the %d signers' keys for %s verifies it", ErrSignature, len(tried), c.alg)
	}
}
