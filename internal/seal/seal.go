package seal

import (
	"crypto/rand"
	"errors"
	"fmt"

	"muster/internal/wire"
)

// Treat a message with these errors as if it had not arrived.
var (
	// ErrUnknownKey means a message sealed to a removed key or another installation's key. The error text names it.
	ErrUnknownKey = errors.New("sealed to an unknown key")

	// ErrOpen means a message that is damaged, forged, malformed, or sealed for another key, session, purpose or
	// request.
	ErrOpen = errors.New("sealed message does not open")
)

// A Purpose separates messages: what is sealed for one does not open for another.
type Purpose string

// Purposes are labels of the key derivation.
const (
	PurposeEnroll  Purpose = "muster enroll v1"  // enroll requests and their replies
	PurposeApplied Purpose = "muster applied v1" // confirmations and their replies
	PurposeConnect Purpose = "muster connect v1" // tokens; see [Session.Token]
)

const (
	encapsulatedBytes = 32 // RFC 9180 section 7.1
	tagBytes          = 16 // AES-256-GCM, NIST SP 800-38D
)

// maxCiphertextBytes is the size of the largest message, padded and sealed.
const maxCiphertextBytes = saltBytes + (lengthBytes+wire.MaxMessageBytes+padTo-1)/padTo*padTo + tagBytes

// Seal encrypts with a new salt, so equal plaintexts give different ciphertexts. The error may wrap
// [wire.ErrTooLarge].
func (s *Session) Seal(purpose Purpose, plaintext []byte) (*wire.Envelope, *ReplyOpener, error) {
	if len(plaintext) > wire.MaxMessageBytes {
		return nil, nil, fmt.Errorf("seal: %w: %d bytes, limit %d",
			wire.ErrTooLarge, len(plaintext), wire.MaxMessageBytes)
	}
	frame := newFrame(len(plaintext))
	pad(frame[saltBytes:], plaintext)
	e, reply := s.seal(purpose, frame)
	return e, reply, nil
}

func newFrame(n int) []byte {
	size := saltBytes + padded(n)
	return make([]byte, size, size+tagBytes)
}

// seal encrypts in place.
func (s *Session) seal(purpose Purpose, frame []byte) (*wire.Envelope, *ReplyOpener) {
	salt, body := frame[:saltBytes], frame[saltBytes:]
	_, _ = rand.Read(salt) // never fails (Go 1.24)
	c, replies := s.secret.message(purpose, salt)
	ct := c.Seal(salt, c.nonce, body, nil)
	e := &wire.Envelope{
		Version:      wire.Version,
		Sealed:       true,
		Key:          s.key,
		Encapsulated: s.enc,
		Ciphertext:   ct,
	}
	return e, &ReplyOpener{newExchange(replies, ct)}
}
