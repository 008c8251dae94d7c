package jwt

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/keyfile"
	"muster/internal/limit"
)

// NotBeforeLeeway is how far a provisioner's clock may be behind that of the machine that signs tokens (RFC 7519
// section 4.1.5: a few minutes at most). `exp` has no leeway.
const NotBeforeLeeway = 60 * time.Second

// issuedAheadLimit is how far the iat of a token of limited use may be in the future. A recovery freezes such tokens by
// their iat, and one of a later day would escape.
const issuedAheadLimit = 5 * time.Minute

// VerifierConfig configures [NewVerifier].
type VerifierConfig struct {
	// Signers are required; no two may have the same key, since their limits could differ.
	Signers []Signer

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time
}

// A hash: the time of a look-up must not reveal cached tokens.
type cacheKey [sha256.Size]byte

// Enough for ten fleets with a token per rack; most fleets share one token.
const cacheSize = 1024

// A Verifier authenticates tokens. It is safe for concurrent use.
type Verifier struct {
	signers []signer // read-only
	now     func() time.Time
	cache   *limit.Cache[cacheKey, *Verified]
}

type signer struct {
	Signer
	id SignerID
}

// NewVerifier copies the signers. The error names every mistake, and wraps [ErrKey] for a key. To change the signers,
// make another Verifier, which starts with an empty cache.
func NewVerifier(cfg VerifierConfig) (*Verifier, error) {
	var errs []error
	if len(cfg.Signers) == 0 {
		errs = append(errs, errors.New("no signers"))
	}
	v := &Verifier{now: cfg.Now, cache: limit.NewCache[cacheKey, *Verified](cacheSize)}
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

// Verify authenticates a token and checks purpose, times and signer. It caches authenticated tokens only. The caller
// counts uses and checks revocations by ID.
//
// The error wraps exactly one of [ErrMalformed], [ErrUnsupported], [ErrLimit], [ErrUnknownSigner], [ErrSignature],
// [ErrSignerExpired], [ErrPurpose], [ErrExpired] and [ErrNotYetValid].
func (v *Verifier) Verify(text string) (*Verified, error) { return v.VerifyFrom(text, nil) }

// VerifyFrom is [Verifier.Verify] for a text from the network. It charges the sender's budget before it checks a
// signature, and refunds authentic tokens. Cached texts cost nothing. If the budget is spent, the error wraps
// [ErrBudget]. A nil budget is unlimited.
func (v *Verifier) VerifyFrom(text string, budget Budget) (*Verified, error) {
	// Hashing a text of megabytes would be expensive.
	if len(text) > MaxTokenBytes {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrMalformed, len(text), MaxTokenBytes)
	}
	key := cacheKey(sha256.Sum256([]byte(text)))
	found, ok := v.cache.Get(key)
	if !ok {
		var err error
		if found, err = v.authenticate(text, budget); err != nil {
			return nil, err
		}
		v.cache.Put(key, found)
	}
	if err := found.checkTimes(v.now()); err != nil {
		return nil, err
	}
	result := *found
	return &result, nil
}

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
		return nil, fmt.Errorf("%w: purpose %.40q, subject %.40q, want %q",
			ErrPurpose, c.claims.Purpose, c.claims.Subject, Purpose)
	}
	// After the check of the purpose: a token with another purpose is not cached, and every check of it must cost.
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

// signerOf tries every signer with a key for the algorithm, since `kid` is ignored.
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
		return nil, fmt.Errorf("%w: algorithm %q, and none of the %d signers has a key for it",
			ErrUnknownSigner, c.alg, len(v.signers))
	case 1:
		return nil, fmt.Errorf("%w: not made with the key of signer %q, SHA-256 %s",
			ErrSignature, tried[0].Name, tried[0].id)
	default:
		return nil, fmt.Errorf("%w: none of the %d signers' keys for %s verifies it", ErrSignature, len(tried), c.alg)
	}
}

// A Budget limits how many signatures are checked for a sender; a check takes up to 325 µs (RSA of 4096 bits,
// measured).
type Budget interface {
	// Charge takes one check from the budget; false: it is spent.
	Charge() bool
	// Refund returns one check to the budget.
	Refund()
}

// Reasons why a token is refused. Errors of [Verifier], [Peek] and [Verified.Admits] wrap exactly one of them. Their
// texts hold no secret.
var (
	// ErrMalformed means that the text is not a compact JWS over claims of the right types.
	ErrMalformed = errors.New("malformed token")

	// ErrUnsupported means an unsupported algorithm, or a header that would change how the token is verified.
	ErrUnsupported = errors.New("unsupported form of token")

	// ErrLimit means a limit that this version does not know and so cannot enforce: update the program.
	ErrLimit = errors.New("token carries an unknown limit")

	// ErrUnknownSigner means that no signer has a key for the token's algorithm.
	ErrUnknownSigner = errors.New("token signed by an unknown signer")

	// ErrSignature means that no signer's key verifies the signature.
	ErrSignature = errors.New("token signature does not verify")

	ErrExpired = errors.New("token has expired")

	ErrNotYetValid = errors.New("token is not valid yet")

	ErrPurpose = errors.New("not a provisioning token")

	// ErrSignerExpired means that the signer's certificate is expired or not valid yet.
	ErrSignerExpired = errors.New("signer certificate is outside its validity")

	// ErrBudget means that the signature was not checked: the token may be valid, so let the sender retry later.
	ErrBudget = errors.New("too many signatures to check for this sender")

	ErrIdentity = errors.New("token does not cover the identity")

	ErrSite = errors.New("token does not cover the site")
)

// Reasons why [ParseSigner], [ParsePrivateKey], [NewVerifier] or [Sign] refuses a key.
var (
	// ErrKey means that there is no key, or one unsuitable for tokens.
	ErrKey = keyfile.ErrKey

	// ErrPassphrase means that the passphrase is missing or wrong: ask for another one.
	ErrPassphrase = keyfile.ErrPassphrase
)
