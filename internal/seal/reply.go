package seal

import (
	"crypto/rand"
	"fmt"
	"slices"

	"muster/internal/wire"
)

const maxFrameBytes = saltBytes + (lengthBytes+wire.MaxReplyBytes+padTo-1)/padTo*padTo + tagBytes

type exchange struct {
	replies secret // derives keys of replies
	aad     []byte // the request's tag, to which replies are bound
}

func newExchange(replies secret, ct []byte) exchange {
	return exchange{replies, slices.Clone(ct[len(ct)-tagBytes:])}
}

func (x exchange) cipher(salt []byte) *aead {
	return newAEAD(x.replies(replyLabel, salt, keyBytesGCM+nonceBytesGCM))
}

// A ReplySealer encrypts replies to one request. It is safe for concurrent use.
type ReplySealer struct{ x exchange }

// Seal encrypts a reply. Above [wire.MaxReplyBytes] the error wraps [wire.ErrTooLarge].
func (r *ReplySealer) Seal(plaintext []byte) ([]byte, error) {
	if len(plaintext) > wire.MaxReplyBytes {
		return nil, fmt.Errorf("seal reply: %w: %d bytes, limit %d",
			wire.ErrTooLarge, len(plaintext), wire.MaxReplyBytes)
	}
	frame := newFrame(len(plaintext))
	salt, body := frame[:saltBytes], frame[saltBytes:] // body is encrypted in place
	_, _ = rand.Read(salt)                             // never fails (Go 1.24)
	pad(body, plaintext)
	c := r.x.cipher(salt)
	return c.Seal(salt, c.nonce, body, r.x.aad), nil
}

// A ReplyOpener decrypts replies to one request. It is safe for concurrent use.
type ReplyOpener struct{ x exchange }

// Open decrypts a reply, possibly a replayed one. On [ErrOpen], ignore the reply and continue to wait.
func (r *ReplyOpener) Open(frame []byte) ([]byte, error) {
	if err := checkFrame("reply", frame, maxFrameBytes); err != nil {
		return nil, err
	}
	return r.x.cipher(frame[:saltBytes]).open(frame, r.x.aad)
}

func checkFrame(what string, frame []byte, limit int) error {
	switch {
	case len(frame) > limit:
		return fmt.Errorf("%w: %s of %d bytes, limit %d", ErrOpen, what, len(frame), limit)
	case len(frame) <= saltBytes+tagBytes || (len(frame)-saltBytes-tagBytes)%padTo != 0:
		return fmt.Errorf("%w: %s of %d bytes, want %d more than a multiple of %d",
			ErrOpen, what, len(frame), saltBytes+tagBytes, padTo)
	}
	return nil
}

func (c *aead) open(frame, aad []byte) ([]byte, error) {
	buf, err := c.Open(nil, c.nonce, frame[saltBytes:], aad)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOpen, err)
	}
	plaintext, ok := unpad(buf)
	if !ok {
		return nil, fmt.Errorf("%w: wrong padding", ErrOpen)
	}
	return plaintext, nil
}
