package seal

import (
	"fmt"

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
