package seal

import (
	"crypto/rand"
	"errors"
	"fmt"

	"muster/internal/wire"
)

// What opening can say. None of it is worth telling a stranger apart from the
// others, and what did not open is to be treated as if it had never come.
var (
	// ErrUnknownKey means that something is sealed to a key that the [Opener]
	// does not hold: the token is older than the last rotation, or another
	// installation's. The text names the key.
	ErrUnknownKey = errors.New("sealed to a key that is not held")

	// ErrOpen means that something is damaged, forged, of another form, or
	// sealed for another key, session, purpose or request. Which, nobody can say.
	ErrOpen = errors.New("sealed message does not open")
)

// A Purpose says what is sealed. What was sealed for one purpose opens for no
// other.
type Purpose string

// The purposes: the labels under which the keys of a message are derived.
const (
	PurposeEnroll  Purpose = "muster enroll v1"  // an enroll request and its replies
	PurposeApplied Purpose = "muster applied v1" // a confirmation and its replies
	PurposeConnect Purpose = "muster connect v1" // the token of a connection; see [Session.Token]
)

// Sizes of what sealing adds.
const (
	encapsulatedBytes = 32 // RFC 9180 section 7.1
	tagBytes          = 16 // of AES-256-GCM, NIST SP 800-38D
)

// maxCiphertextBytes bounds what is opened: the largest message, padded.
const maxCiphertextBytes = saltBytes + (lengthBytes+wire.MaxMessageBytes+padTo-1)/padTo*padTo + tagBytes

// Seal seals plaintext of at most [wire.MaxMessageBytes], which may be empty.
// Sealing the same twice gives results that have nothing in common but the
// session. The [ReplyOpener] opens replies to this one message.
//
// The error wraps [wire.ErrTooLarge].
func (s *Session) Seal(purpose Purpose, plaintext []byte) (*wire.Envelope, *ReplyOpener, error) {
	if len(plaintext) > wire.MaxMessageBytes {
		return nil, nil, fmt.Errorf("seal: %w: %d bytes, limit %d", wire.ErrTooLarge, len(plaintext), wire.MaxMessageBytes)
	}
	frame := newFrame(len(plaintext))
	pad(frame[saltBytes:], plaintext)
	return s.seal(purpose, frame)
}

// newFrame returns the place of a salt and a plaintext of n bytes, padded, with
// room for the tag.
func newFrame(n int) []byte {
	size := saltBytes + padded(n)
	return make([]byte, size, size+tagBytes)
}

// seal seals what stands padded behind the place of the salt, where it lies.
func (s *Session) seal(purpose Purpose, frame []byte) (*wire.Envelope, *ReplyOpener, error) {
	salt, body := frame[:saltBytes], frame[saltBytes:]
	if _, err := rand.Read(salt); err != nil {
		return nil, nil, fmt.Errorf("seal: %w", err)
	}
	c, replies, err := s.secret.message(purpose, salt)
	if err != nil {
		return nil, nil, fmt.Errorf("seal: %w", err)
	}
	ct := c.Seal(salt, c.nonce, body, nil)
	e := &wire.Envelope{Version: wire.Version, Sealed: true, Key: s.key, Encapsulated: s.enc, Ciphertext: ct}
	return e, &ReplyOpener{newExchange(replies, ct)}, nil
}
