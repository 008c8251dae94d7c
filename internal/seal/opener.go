package seal

import (
	"fmt"

	"muster/internal/wire"
)

// An Opener holds the provisioner's private keys and opens what was sealed to
// any of them. It remembers the sessions that it has opened lately, which only
// saves time (see [cache]). It is safe for concurrent use. Make one with
// [NewOpener].
type Opener struct {
	keys  map[string]*PrivateKey // by id; set by NewOpener, then read-only
	cache func() *cache          // what it remembers; a function because fmt prints everything else
}

// NewOpener returns an Opener for keys, at least one, each once. To rotate, add
// the new key, sign tokens with it, and take the old one out when the last
// token that names it has expired. The error wraps [ErrKey].
func NewOpener(keys ...*PrivateKey) (*Opener, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no key at all", ErrKey)
	}
	c := &cache{secrets: make(map[sessionID][secretBytes]byte)}
	o := &Opener{keys: make(map[string]*PrivateKey, len(keys)), cache: func() *cache { return c }}
	for _, k := range keys {
		if o.keys[k.public.ID()] != nil {
			return nil, fmt.Errorf("%w: key %q is given twice", ErrKey, k.public.ID())
		}
		o.keys[k.public.ID()] = k
	}
	return o, nil
}

// Open opens e, which [wire.Open] has decoded and which must have been sealed for
// purpose. The plaintext may be empty. It is whatever a stranger wanted it to be:
// sealing takes no secret. The same e opens any number of times. Every reply from
// here on, whatever the message turns out to be, goes through the ReplySealer.
//
// The error wraps [ErrPlain], [ErrUnknownKey] or [ErrOpen]. There is no ReplySealer
// then, and any reply can only be a plain one, which the node will not believe.
func (o *Opener) Open(purpose Purpose, e *wire.Envelope) (plaintext []byte, reply *ReplySealer, err error) {
	if !e.Sealed {
		return nil, nil, ErrPlain
	}
	if err := checkFrame("ciphertext", e.Ciphertext, maxCiphertextBytes); err != nil {
		return nil, nil, err // before anything is computed
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

// session returns the secret of a session. keep remembers it; call it once
// something of the session has opened.
func (o *Opener) session(key string, enc []byte) (s secret, keep func(), err error) {
	if len(enc) != encapsulatedBytes {
		return nil, nil, fmt.Errorf("%w: encapsulated key of %d bytes, want %d", ErrOpen, len(enc), encapsulatedBytes)
	}
	k := o.keys[key]
	if k == nil {
		return nil, nil, fmt.Errorf("%w: %.40q", ErrUnknownKey, key)
	}
	id, cache := newSessionID(key, enc), o.cache()
	if b, ok := cache.get(id); ok {
		return newSecret(b), func() {}, nil
	}
	b, err := k.session(enc)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrOpen, err)
	}
	return newSecret(b), func() { cache.put(id, b) }, nil
}
