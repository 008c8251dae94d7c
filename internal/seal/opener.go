package seal

import (
	"crypto/hpke"
	"errors"
	"fmt"
)

// An Opener holds the provisioner's private keys and opens what was sealed to
// any of them. It is safe for concurrent use. Make one with [NewOpener].
type Opener struct {
	keys map[string]*PrivateKey // by id; set by NewOpener, then read-only
}

// NewOpener returns an Opener for keys, at least one, each once. To rotate, add
// the new key, sign tokens with it, and take the old one out when the last
// token that names it has expired. The error wraps [ErrKey].
func NewOpener(keys ...*PrivateKey) (*Opener, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no key at all", ErrKey)
	}
	o := &Opener{keys: make(map[string]*PrivateKey, len(keys))}
	var errs []error
	for i, k := range keys {
		switch {
		case k == nil || k.secret == nil:
			errs = append(errs, fmt.Errorf("%w: key %d of %d is nil", ErrKey, i+1, len(keys)))
		case o.keys[k.public.ID()] != nil:
			errs = append(errs, fmt.Errorf("%w: key %q is given twice", ErrKey, k.public.ID()))
		default:
			o.keys[k.public.ID()] = k
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return o, nil
}

// Open opens s, which must have been sealed for purpose and with aad. The
// plaintext may be empty. It is whatever a stranger wanted it to be: sealing
// takes no secret. The same s opens any number of times.
//
// The error wraps [ErrUnknownKey] or [ErrOpen]. There is no ReplySealer then,
// and any reply can only be a plain one, which the node will not believe.
func (o *Opener) Open(purpose Purpose, s *Sealed, aad []byte) (plaintext []byte, reply *ReplySealer, err error) {
	info := purpose.info()
	switch {
	case info == nil:
		return nil, nil, fmt.Errorf("%w: purpose %d is not one", ErrOpen, purpose)
	case s == nil:
		return nil, nil, fmt.Errorf("%w: nothing there", ErrOpen)
	case len(s.Encapsulated) != encapsulatedBytes:
		return nil, nil, fmt.Errorf("%w: encapsulated key of %d bytes, want %d", ErrOpen, len(s.Encapsulated), encapsulatedBytes)
	case len(s.Ciphertext) > maxCiphertextBytes:
		return nil, nil, fmt.Errorf("%w: ciphertext of %d bytes, limit %d", ErrOpen, len(s.Ciphertext), maxCiphertextBytes)
	case len(s.Ciphertext) <= tagBytes || (len(s.Ciphertext)-tagBytes)%padTo != 0:
		return nil, nil, fmt.Errorf("%w: ciphertext of %d bytes, want %d more than a multiple of %d", ErrOpen, len(s.Ciphertext), tagBytes, padTo)
	}
	k := o.keys[s.Key]
	if k == nil {
		return nil, nil, fmt.Errorf("%w: %.40q", ErrUnknownKey, s.Key)
	}
	_, key := k.secret()
	_, kdf, aead := suite()
	recipient, err := hpke.NewRecipient(s.Encapsulated, key, kdf, aead, info)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrOpen, err)
	}
	buf, err := recipient.Open(aad, s.Ciphertext)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrOpen, err)
	}
	plaintext, ok := unpad(buf)
	if !ok {
		return nil, nil, fmt.Errorf("%w: wrong padding", ErrOpen)
	}
	x, err := newExchange(recipient, s)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrOpen, err)
	}
	return plaintext, &ReplySealer{x}, nil
}
