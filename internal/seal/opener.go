package seal

import (
	"crypto/rand"
	"fmt"
	"slices"

	"muster/internal/limit"
	"muster/internal/wire"
)

// cacheEntries sessions take about 1 MB.
const cacheEntries = 8192

// A sessionID is the key's id and the encapsulated key.
type sessionID [idChars + encapsulatedBytes]byte

// A cache has the secrets of sessions of which a message was opened. So to evict a session, a sender must compute a key
// agreement. It has no pointers for the garbage collector to scan.
type cache = limit.Cache[sessionID, [secretBytes]byte]

// An Opener opens messages that were sealed to any of its keys. It is safe for concurrent use.
type Opener struct {
	keys  map[string]*PrivateKey // by id; read-only
	cache func() *cache          // a function, because fmt prints other fields
}

// NewOpener needs at least one key. To rotate, add a new key, sign tokens that contain it, and remove the old key
// once its last token has expired. The error wraps [ErrKey].
func NewOpener(keys ...*PrivateKey) (*Opener, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no key, want at least one", ErrKey)
	}
	c := limit.NewCache[sessionID, [secretBytes]byte](cacheEntries)
	o := &Opener{keys: make(map[string]*PrivateKey, len(keys)), cache: func() *cache { return c }}
	for _, k := range keys {
		if o.keys[k.public.ID()] != nil {
			return nil, fmt.Errorf("%w: key %q is given twice", ErrKey, k.public.ID())
		}
		o.keys[k.public.ID()] = k
	}
	return o, nil
}

// Open opens an envelope that was sealed for purpose. The sender is not authenticated. The error wraps [ErrPlain],
// [ErrUnknownKey] or [ErrOpen]; answer it with a plain reply, if at all.
func (o *Opener) Open(purpose Purpose, e *wire.Envelope) (plaintext []byte, reply *ReplySealer, err error) {
	if !e.Sealed {
		return nil, nil, ErrPlain
	}
	if err := checkFrame("ciphertext", e.Ciphertext, maxCiphertextBytes); err != nil {
		return nil, nil, err // before any computation
	}
	session, keep, err := o.session(e.Key, e.Encapsulated)
	if err != nil {
		return nil, nil, err
	}
	plaintext, x, err := session.open(purpose, e.Ciphertext)
	if err != nil {
		return nil, nil, err
	}
	keep()
	return plaintext, &ReplySealer{x}, nil
}

// session returns keep, which caches the session. Call keep only after a message was opened.
func (o *Opener) session(key string, enc []byte) (s secret, keep func(), err error) {
	if len(enc) != encapsulatedBytes {
		return nil, nil, fmt.Errorf("%w: encapsulated key of %d bytes, want %d", ErrOpen, len(enc), encapsulatedBytes)
	}
	k := o.keys[key]
	if k == nil {
		return nil, nil, fmt.Errorf("%w: %.40q", ErrUnknownKey, key)
	}
	var id sessionID
	copy(id[copy(id[:], key):], enc)
	cache := o.cache()
	if b, ok := cache.Get(id); ok {
		return newSecret(b[:]), func() {}, nil
	}
	b, err := k.session(enc)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrOpen, err)
	}
	return newSecret(b), func() { cache.Put(id, [secretBytes]byte(b)) }, nil
}

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
