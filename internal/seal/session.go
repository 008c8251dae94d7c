package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"muster/internal/wire"
)

// Labels of the derivation, part of the protocol; see the package comment. None
// is the beginning of another, so that no two uses derive the same.
const (
	sessionInfo  = "muster session v1" // HPKE's info
	sessionLabel = "muster session v1" // exporter context
	proofLabel   = "muster proof v1"
	replyLabel   = "muster reply v1"
)

const (
	secretBytes = 32 // the output of HKDF-SHA256
	saltBytes   = 32 // chosen, as in RFC 9458 section 4.4: no two of a session are ever the same
	proofBytes  = 32 // HMAC-SHA256, whole

	keyBytesGCM   = 32 // AES-256
	nonceBytesGCM = 12 // NIST SP 800-38D section 8.2.1
)

// suite returns the three parts of HPKE that this protocol has fixed. HPKE
// agrees on a secret and encrypts nothing itself.
func suite() (hpke.KEM, hpke.KDF, hpke.AEAD) {
	return hpke.DHKEM(ecdh.X25519()), hpke.HKDFSHA256(), hpke.ExportOnly()
}

// A secret is what both sides of something know, and nobody else: 32 bytes, from
// which it derives others. It is a function because fmt prints everything else,
// %s even through two pointers. Nil is a secret that never was.
type secret func(label string, context []byte, length int) ([]byte, error)

// newSecret returns HKDF-Expand with b, which must be uniformly random.
func newSecret(b []byte) secret {
	return func(label string, context []byte, length int) ([]byte, error) {
		return hkdf.Expand(sha256.New, b, label+string(context), length)
	}
}

// An aead encrypts or decrypts one message.
type aead struct {
	cipher.AEAD
	nonce []byte
}

// newAEAD takes key and nonce off the beginning of b.
func newAEAD(b []byte) (*aead, error) {
	block, err := aes.NewCipher(b[:keyBytesGCM])
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &aead{gcm, b[keyBytesGCM : keyBytesGCM+nonceBytesGCM]}, nil
}

// message returns the cipher of the one message of a session that has this salt,
// and the secret for its replies.
func (s secret) message(purpose Purpose, salt []byte) (*aead, secret, error) {
	b, err := s(string(purpose), salt, keyBytesGCM+nonceBytesGCM+secretBytes)
	if err != nil {
		return nil, nil, err
	}
	c, err := newAEAD(b)
	return c, newSecret(b[keyBytesGCM+nonceBytesGCM:]), err
}

// open opens the ciphertext, whose length has been checked, of one message of a
// session.
func (s secret) open(purpose Purpose, ct []byte) ([]byte, exchange, error) {
	c, replies, err := s.message(purpose, ct[:saltBytes])
	if err != nil {
		return nil, exchange{}, fmt.Errorf("%w: %w", ErrOpen, err)
	}
	plaintext, err := c.open(ct, nil)
	if err != nil {
		return nil, exchange{}, err
	}
	return plaintext, newExchange(replies, ct), nil
}

// exporter is an HPKE context of either side.
type exporter interface {
	Export(label string, length int) ([]byte, error)
}

// A Session is a node's side of one connection in sealed mode: one agreement on
// a secret, from which whatever is sealed on the connection has keys of its own.
// It is safe for concurrent use. Make one with [NewSession] for each connection.
type Session struct {
	key    string // id of the key that it is sealed to
	enc    []byte // HPKE's encapsulated key
	secret secret
	token  string // sealed
}

// NewSession agrees on a secret with the holder of k and seals the token with
// it.
//
// The error wraps [wire.ErrTooLarge] for a token above [wire.MaxTokenBytes] or
// [ErrKey] if k is the zero value; it does not print the token.
func NewSession(k PublicKey, token wire.Secret) (*Session, error) {
	switch {
	case token == "":
		return nil, errors.New("seal token: empty")
	case IsSealedToken(string(token)):
		return nil, errors.New("seal token: it is sealed already")
	case len(token) > wire.MaxTokenBytes:
		return nil, fmt.Errorf("seal token: %w: %d bytes, limit %d", wire.ErrTooLarge, len(token), wire.MaxTokenBytes)
	}
	s, err := k.agree()
	if err != nil {
		return nil, fmt.Errorf("seal token: %w", err)
	}
	sealed, _, err := s.Seal(PurposeConnect, []byte(token))
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	s.token = tokenPrefix + s.key + "." + s.Name() + "." + base64.RawURLEncoding.EncodeToString(sealed.Ciphertext)
	return s, nil
}

// agree returns a session without a token.
func (k PublicKey) agree() (*Session, error) {
	kem, kdf, none := suite()
	public, err := kem.NewPublicKey(k.b[:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	enc, sender, err := hpke.NewSender(public, kdf, none, []byte(sessionInfo))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err) // of small order, as the zero value is
	}
	secret, err := export(sender)
	if err != nil {
		return nil, err
	}
	return &Session{key: k.ID(), enc: enc, secret: newSecret(secret)}, nil
}

// export takes the secret of a session out of an HPKE context.
func export(context exporter) ([]byte, error) {
	b, err := context.Export(sessionLabel, secretBytes)
	if err != nil {
		return nil, fmt.Errorf("export session secret: %w", err)
	}
	return b, nil
}

// Token returns what the connection presents as CONNECT's auth_token:
//
//	muster-sealed-v1.<key id>.<encapsulated key>.<ciphertext>
//
// the last two in base64url without padding.
func (s *Session) Token() string { return s.token }

// Name returns what the connection presents as CONNECT's nkey, and the broker
// reports as the user of its requests: see [SessionName].
func (s *Session) Name() string { return SessionName(s.enc) }

// Prove returns what the connection presents, in base64url, as CONNECT's sig: that
// it has agreed on the secret, now that the broker has chosen the nonce. It is a
// nats.SignatureHandler.
func (s *Session) Prove(nonce []byte) ([]byte, error) { return s.secret.proof(nonce) }

// proof is HMAC-SHA256 under the session's secret, over label and nonce.
func (s secret) proof(nonce []byte) ([]byte, error) { return s(proofLabel, nonce, proofBytes) }

// SessionName returns the name of the session with this encapsulated key: that
// in base64url without padding, 43 characters. A connection of which the broker
// says that it has this name, and which [Opener.OpenToken] has let in, is one of
// whoever made the session.
func SessionName(encapsulated []byte) string {
	return base64.RawURLEncoding.EncodeToString(encapsulated)
}

// session returns the secret of the session that was agreed on with k by enc.
func (k *PrivateKey) session(enc []byte) ([]byte, error) {
	_, kdf, none := suite()
	recipient, err := hpke.NewRecipient(enc, k.secret(), kdf, none, []byte(sessionInfo))
	if err != nil {
		return nil, err
	}
	return export(recipient)
}
