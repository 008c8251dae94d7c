package seal

import (
	"crypto/ecdh"
	"crypto/hpke"
	"errors"
	"fmt"

	"muster/internal/wire"
)

// What opening can say. Neither is worth telling a stranger apart from the
// other, and what did not open is to be treated as if it had never come.
var (
	// ErrUnknownKey means that something is sealed to a key that the [Opener]
	// does not hold: the token is older than the last rotation, or another
	// installation's. The text names the key.
	ErrUnknownKey = errors.New("sealed to a key that is not held")

	// ErrOpen means that something is damaged, forged, of another form, or
	// sealed for another key, purpose or request. Which, nobody can say.
	ErrOpen = errors.New("sealed message does not open")
)

// A Purpose says what is sealed. What was sealed for one purpose opens for no
// other.
type Purpose uint8

// The purposes. The zero value is none of them, and is refused.
const (
	PurposeEnroll  Purpose = iota + 1 // an enroll request and its replies
	PurposeApplied                    // a confirmation and its replies
	PurposeConnect                    // the token of a connection; see [SealToken]
)

// info is HPKE's info for p, or nil for no purpose.
func (p Purpose) info() []byte {
	switch p {
	case PurposeEnroll:
		return []byte("muster enroll v1")
	case PurposeApplied:
		return []byte("muster applied v1")
	case PurposeConnect:
		return []byte("muster connect v1")
	default:
		return nil
	}
}

// Sizes of what HPKE adds, RFC 9180 sections 7.1 and 7.3.
const (
	encapsulatedBytes = 32
	tagBytes          = 16
)

// maxCiphertextBytes bounds what is opened: the largest message, padded.
const maxCiphertextBytes = (lengthBytes+wire.MaxMessageBytes+padTo-1)/padTo*padTo + tagBytes

// Sealed is something that was sealed, the three members of a sealed
// [wire.Envelope]. Nothing in it is authenticated.
type Sealed struct {
	Key          string // [PublicKey.ID] of the key that it is sealed to
	Encapsulated []byte // HPKE's encapsulated key, 32 bytes
	Ciphertext   []byte // a multiple of 256 bytes, and 16
}

// suite returns the three parts of HPKE that this protocol has fixed.
func suite() (hpke.KEM, hpke.KDF, hpke.AEAD) {
	return hpke.DHKEM(ecdh.X25519()), hpke.HKDFSHA256(), hpke.ChaCha20Poly1305()
}

// Seal seals plaintext of at most [wire.MaxMessageBytes], and binds to it aad,
// which is not sent and which the opener must know. Either may be empty.
// Sealing the same twice gives results that have nothing in common. The
// [ReplyOpener] opens replies to this one message.
//
// The error wraps [wire.ErrTooLarge], or [ErrKey] if k is the zero value.
func (k PublicKey) Seal(purpose Purpose, plaintext, aad []byte) (*Sealed, *ReplyOpener, error) {
	info := purpose.info()
	if info == nil {
		return nil, nil, fmt.Errorf("seal: purpose %d is not one", purpose)
	}
	if len(plaintext) > wire.MaxMessageBytes {
		return nil, nil, fmt.Errorf("seal: %w: %d bytes, limit %d", wire.ErrTooLarge, len(plaintext), wire.MaxMessageBytes)
	}
	buf := make([]byte, padded(len(plaintext)))
	pad(buf, plaintext)
	return k.seal(info, buf, aad)
}

// seal seals what has been padded.
func (k PublicKey) seal(info, padded, aad []byte) (*Sealed, *ReplyOpener, error) {
	kem, kdf, aead := suite()
	public, err := kem.NewPublicKey(k.b[:])
	if err != nil {
		return nil, nil, fmt.Errorf("seal: %w: %w", ErrKey, err)
	}
	enc, sender, err := hpke.NewSender(public, kdf, aead, info)
	if err != nil {
		return nil, nil, fmt.Errorf("seal: %w: %w", ErrKey, err) // of small order, as the zero value is
	}
	ct, err := sender.Seal(aad, padded)
	if err != nil {
		return nil, nil, fmt.Errorf("seal: %w", err)
	}
	s := &Sealed{Key: k.ID(), Encapsulated: enc, Ciphertext: ct}
	x, err := newExchange(sender, s)
	if err != nil {
		return nil, nil, fmt.Errorf("seal: %w", err)
	}
	return s, &ReplyOpener{x}, nil
}
