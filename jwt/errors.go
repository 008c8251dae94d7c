package jwt

import (
	"errors"

	"muster/internal/keyfile"
)

// Reasons why a token is not accepted. An error of [Verifier.Verify],
// [Verifier.VerifyFrom], [Peek] or [Verified.Admits] wraps exactly one of these; the text around it is for
// operators, quotes what it found, holds no secret and may change.
var (
	// ErrMalformed means that the text is no compact JWS over claims of the
	// right types. The file is damaged or something else: replace it.
	ErrMalformed = errors.New("malformed token")

	// ErrUnsupported means a form that is refused on principle: an algorithm
	// other than ours, or a header that would change how the token is
	// verified. No retry helps; an honest signer made no such token.
	ErrUnsupported = errors.New("unsupported form of token")

	// ErrLimit means that `extensions.muster` has a member that this version
	// does not know. Whatever it limits would go unlimited, so the token is
	// refused: update the program, or sign without the limit.
	ErrLimit = errors.New("token carries an unknown limit")

	// ErrUnknownSigner means that no signer has a key for the token's
	// algorithm: configure the signer, or sign with a key that is.
	ErrUnknownSigner = errors.New("token signed by an unknown signer")

	// ErrSignature means that no signer's key verifies the signature: the
	// token was altered, or signed with another key.
	ErrSignature = errors.New("token signature does not verify")

	// ErrExpired means that the token's time is over: sign a new one.
	ErrExpired = errors.New("token has expired")

	// ErrNotYetValid means that the token's time is still to come: wait, or
	// look at the clocks.
	ErrNotYetValid = errors.New("token is not valid yet")

	// ErrPurpose means an authentic token made for something other than
	// provisioning.
	ErrPurpose = errors.New("not a provisioning token")

	// ErrSignerExpired means that the signature is right, but the signer's
	// certificate has expired or is not valid yet: renew the signer.
	ErrSignerExpired = errors.New("signer certificate is outside its validity")

	// ErrBudget means that the sender has had too many signatures checked that
	// did not verify, so this one was not checked: the token may be good. Tell
	// the sender to come back. Only [Verifier.VerifyFrom] returns it.
	ErrBudget = errors.New("too many signatures to check for this sender")

	// ErrIdentity means that the token, or its signer, does not cover the
	// identity.
	ErrIdentity = errors.New("token does not cover the identity")

	// ErrSite means that the token, or its signer, does not cover the site.
	ErrSite = errors.New("token does not cover the site")
)

// Reasons why a key is not accepted, by [ParseSigner], [ParsePrivateKey],
// [NewVerifier] and [Sign].
var (
	// ErrKey means that the bytes hold no key that can sign or verify tokens.
	// The text around it says what they hold, and what to do.
	ErrKey = keyfile.ErrKey

	// ErrPassphrase means that the key is encrypted and the passphrase is
	// missing or wrong: ask for another one.
	ErrPassphrase = keyfile.ErrPassphrase
)
