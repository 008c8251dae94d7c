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

// No label is a prefix of another, so that no two uses derive the same bytes.
const (
	sessionInfo  = "muster session v1" // HPKE's info
	sessionLabel = "muster session v1" // exporter context
	proofLabel   = "muster proof v1"
	replyLabel   = "muster reply v1"
)

const (
	secretBytes = 32 // HKDF-SHA256
	saltBytes   = 32 // as in RFC 9458 section 4.4, so that salts do not repeat
	proofBytes  = 32 // HMAC-SHA256, whole

	keyBytesGCM   = 32 // AES-256
	nonceBytesGCM = 12 // NIST SP 800-38D section 8.2.1
)

func suite() (hpke.KEM, hpke.KDF, hpke.AEAD) {
	return hpke.DHKEM(ecdh.X25519()), hpke.HKDFSHA256(), hpke.ExportOnly()
}

// A secret derives further secrets from 32 bytes. It is a function, because fmt would print other types.
type secret func(label string, context []byte, length int) []byte

// newSecret needs uniformly random bytes.
func newSecret(b []byte) secret {
	return func(label string, context []byte, length int) []byte {
		derived, _ := hkdf.Expand(sha256.New, b, label+string(context), length) // fails above 8,160 bytes only
		return derived
	}
}

// An aead is for one message, because its nonce must not be reused.
type aead struct {
	cipher.AEAD
	nonce []byte
}

// newAEAD takes key and nonce from the beginning of b.
func newAEAD(b []byte) *aead {
	block, _ := aes.NewCipher(b[:keyBytesGCM]) // its size is right
	gcm, _ := cipher.NewGCM(block)             // fails for other sizes of blocks only
	return &aead{gcm, b[keyBytesGCM : keyBytesGCM+nonceBytesGCM]}
}

func (s secret) message(purpose Purpose, salt []byte) (*aead, secret) {
	b := s(string(purpose), salt, keyBytesGCM+nonceBytesGCM+secretBytes)
	return newAEAD(b), newSecret(b[keyBytesGCM+nonceBytesGCM:])
}

// open opens a ciphertext whose length has been checked.
func (s secret) open(purpose Purpose, ct []byte) ([]byte, exchange, error) {
	c, replies := s.message(purpose, ct[:saltBytes])
	plaintext, err := c.open(ct, nil)
	if err != nil {
		return nil, exchange{}, err
	}
	return plaintext, newExchange(replies, ct), nil
}

type exporter interface {
	Export(label string, length int) ([]byte, error)
}

// A Session is a node's side of one connection. It is safe for concurrent use.
type Session struct {
	key    string // id of the recipient's key
	enc    []byte // HPKE's encapsulated key
	secret secret
	token  string // sealed
}

// NewSession agrees on a secret with the holder of k and seals the token. The error may wrap [wire.ErrTooLarge] or
// [ErrKey]; it does not contain the token.
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

func (k PublicKey) agree() (*Session, error) {
	kem, kdf, none := suite()
	public, err := kem.NewPublicKey(k.b[:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	enc, sender, err := hpke.NewSender(public, kdf, none, []byte(sessionInfo))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err) // a point of small order, such as the zero value
	}
	secret, err := export(sender)
	if err != nil {
		return nil, err
	}
	return &Session{key: k.ID(), enc: enc, secret: newSecret(secret)}, nil
}

func export(context exporter) ([]byte, error) {
	b, err := context.Export(sessionLabel, secretBytes)
	if err != nil {
		return nil, fmt.Errorf("export session secret: %w", err)
	}
	return b, nil
}

// Token returns CONNECT's auth_token, the last two parts in base64url without padding:
//
//	muster-sealed-v1.<key id>.<encapsulated key>.<ciphertext>
func (s *Session) Token() string { return s.token }

// Name returns CONNECT's nkey, the session's name; see [SessionName].
func (s *Session) Name() string { return SessionName(s.enc) }

// Prove returns CONNECT's sig, the proof over the broker's nonce. It is a nats.SignatureHandler.
func (s *Session) Prove(nonce []byte) ([]byte, error) { return s.secret.proof(nonce), nil }

func (s secret) proof(nonce []byte) []byte { return s(proofLabel, nonce, proofBytes) }

// SessionName returns the encapsulated key in base64url. If [Opener.OpenToken] has admitted a connection with this
// name, it belongs to the node that made the session.
func SessionName(encapsulated []byte) string {
	return base64.RawURLEncoding.EncodeToString(encapsulated)
}

func (k *PrivateKey) session(enc []byte) ([]byte, error) {
	_, kdf, none := suite()
	recipient, err := hpke.NewRecipient(enc, k.secret(), kdf, none, []byte(sessionInfo))
	if err != nil {
		return nil, err
	}
	return export(recipient)
}
