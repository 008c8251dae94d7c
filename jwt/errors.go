package jwt

import (
	"errors"

	"muster/internal/keyfile"
)

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
