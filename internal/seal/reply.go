package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"muster/internal/wire"
)

// Labels of the derivation, part of the protocol; see the package comment.
const (
	exportLabel = "muster reply v1"
	keyLabel    = "key"
	nonceLabel  = "nonce"
)

const (
	secretBytes = 32 // the output of HKDF-SHA256
	saltBytes   = 32 // RFC 9458 section 4.4: the longer of AES-256-GCM's key and nonce

	keyBytesGCM   = 32 // AES-256
	nonceBytesGCM = 12 // NIST SP 800-38D section 8.2.1

	maxFrameBytes = saltBytes + (lengthBytes+wire.MaxReplyBytes+padTo-1)/padTo*padTo + tagBytes
)

// An exchange is what both sides know after a message was sealed and opened,
// and nobody else: given a salt, it returns the cipher of one reply. It is a
// function because fmt prints everything else, %s even through two pointers.
// Nil is an exchange that never was.
type exchange func(salt []byte) (*replyCipher, error)

// replyCipher encrypts or decrypts one reply.
type replyCipher struct {
	cipher.AEAD
	nonce []byte
	aad   []byte // digest of the request that replies are bound to
}

// newExchange takes the secret out of an HPKE context, of either side, that has
// sealed or opened s.
func newExchange(context interface {
	Export(label string, length int) ([]byte, error)
}, s *Sealed) (exchange, error) {
	secret, err := context.Export(exportLabel, secretBytes)
	if err != nil {
		return nil, fmt.Errorf("export reply key: %w", err)
	}
	h := sha256.New()
	h.Write(s.Encapsulated)
	h.Write(s.Ciphertext)
	request, enc := h.Sum(nil), slices.Clone(s.Encapsulated)
	return func(salt []byte) (*replyCipher, error) {
		prk, err := hkdf.Extract(sha256.New, secret, slices.Concat(enc, salt))
		if err != nil {
			return nil, err
		}
		key, err := hkdf.Expand(sha256.New, prk, keyLabel, keyBytesGCM)
		if err != nil {
			return nil, err
		}
		nonce, err := hkdf.Expand(sha256.New, prk, nonceLabel, nonceBytesGCM)
		if err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		return &replyCipher{gcm, nonce, request}, nil
	}, nil
}

// A ReplySealer encrypts replies to one request; [Opener.Open] makes it. It can
// be used any number of times and by several goroutines.
type ReplySealer struct{ x exchange }

// Seal encrypts a reply of at most [wire.MaxReplyBytes] for the sender of the
// request. A larger one is [wire.ErrTooLarge].
func (r *ReplySealer) Seal(plaintext []byte) ([]byte, error) {
	if r == nil || r.x == nil {
		return nil, errors.New("seal reply: no request was opened")
	}
	if len(plaintext) > wire.MaxReplyBytes {
		return nil, fmt.Errorf("seal reply: %w: %d bytes, limit %d", wire.ErrTooLarge, len(plaintext), wire.MaxReplyBytes)
	}
	size := saltBytes + padded(len(plaintext))
	frame := make([]byte, size, size+tagBytes)
	salt, body := frame[:saltBytes], frame[saltBytes:] // body is encrypted where it lies
	if _, err := rand.Read(salt); err != nil {
		return nil, fmt.Errorf("seal reply: %w", err)
	}
	pad(body, plaintext)
	c, err := r.x(salt)
	if err != nil {
		return nil, fmt.Errorf("seal reply: %w", err)
	}
	return c.Seal(salt, c.nonce, body, c.aad), nil
}

// A ReplyOpener decrypts replies to one request; [PublicKey.Seal] makes it. It
// can be used any number of times and by several goroutines: what does not open
// leaves it as it was, so a node goes on listening.
type ReplyOpener struct{ x exchange }

// Open decrypts what [ReplySealer.Seal] made. What it returns came from a holder
// of the seal key and answers this request; it may be an earlier answer than
// the last. The error wraps [ErrOpen]: somebody else's reply, or damage; ignore
// it and go on waiting.
func (r *ReplyOpener) Open(frame []byte) ([]byte, error) {
	switch {
	case r == nil || r.x == nil:
		return nil, fmt.Errorf("%w: no request was sealed", ErrOpen)
	case len(frame) > maxFrameBytes:
		return nil, fmt.Errorf("%w: reply of %d bytes, limit %d", ErrOpen, len(frame), maxFrameBytes)
	case len(frame) <= saltBytes+tagBytes || (len(frame)-saltBytes-tagBytes)%padTo != 0:
		return nil, fmt.Errorf("%w: reply of %d bytes, want %d more than a multiple of %d", ErrOpen, len(frame), saltBytes+tagBytes, padTo)
	}
	c, err := r.x(frame[:saltBytes])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOpen, err)
	}
	buf, err := c.Open(nil, c.nonce, frame[saltBytes:], c.aad)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOpen, err)
	}
	plaintext, ok := unpad(buf)
	if !ok {
		return nil, fmt.Errorf("%w: wrong padding", ErrOpen)
	}
	return plaintext, nil
}
