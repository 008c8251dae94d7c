package keyfile

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Credential is the name under which systemd hands the passphrase to a unit:
// LoadCredentialEncrypted=muster-passphrase:FILE.
const Credential = "muster-passphrase" //nolint:gosec // a name, no secret

// A Ring reads private keys from files, and finds the passphrase of those that
// are encrypted: in File, else among the systemd credentials, else by asking.
// It is looked for when the first encrypted key needs it, and remembered for
// the others until [Ring.Forget]. The zero value reads keys that are not
// encrypted. A Ring is not safe for concurrent use.
type Ring struct {
	// File holds the passphrase on one line; see [ReadLine]. If it is set, no
	// other source is tried. Optional.
	File string

	// Credentials is the directory of systemd credentials, the unit's
	// $CREDENTIALS_DIRECTORY, in which [Credential] may lie. Its permissions
	// are systemd's business: where it gives the unit's user access by an
	// access control list, the mode shows that as the group's. Optional.
	Credentials string

	// Ask asks a person. Its error ends the search. Optional: nil if nobody is
	// there.
	Ask func(prompt string) ([]byte, error)

	secret []byte // found, and not yet forgotten
}

// Signer returns the key in the file, which must be able to sign. The error
// wraps [ErrExposed], [ErrKey] or [ErrPassphrase] and names the file; no person is
// asked unless the key is encrypted.
func (r *Ring) Signer(path string) (crypto.Signer, error) {
	signer, passphrase, err := r.SignerAndPassphrase(path)
	clear(passphrase)
	return signer, err
}

// SignerAndPassphrase is [Ring.Signer], and returns with the key the passphrase
// with which it is encrypted, for another that is to be encrypted like it; nil if
// it is not. That is a copy and the caller's to clear. The file is read once: a
// pipe has nothing for a second look.
func (r *Ring) SignerAndPassphrase(path string) (crypto.Signer, []byte, error) {
	key, encrypted, err := r.key(path)
	if err != nil {
		return nil, nil, err
	}
	signer, ok := key.(crypto.Signer)
	switch {
	case !ok:
		return nil, nil, fmt.Errorf("%s: %w: %s cannot sign, want an RSA, P-256 or Ed25519 key", path, ErrKey, Kind(key))
	case encrypted:
		return signer, bytes.Clone(r.secret), nil
	}
	return signer, nil, nil
}

// X25519 is [Ring.Signer] for a key that others seal to.
func (r *Ring) X25519(path string) (*ecdh.PrivateKey, error) {
	key, _, err := r.key(path)
	if err != nil {
		return nil, err
	}
	x, ok := key.(*ecdh.PrivateKey)
	if !ok || x.Curve() != ecdh.X25519() {
		return nil, fmt.Errorf("%s: %w: %s, want X25519", path, ErrKey, Kind(key))
	}
	return x, nil
}

// Remember has the ring try a passphrase before it looks for another, as if it
// had read a key with it. It keeps a copy.
func (r *Ring) Remember(passphrase []byte) {
	r.Forget()
	r.secret = bytes.Clone(passphrase)
}

// Clone returns a ring that knows as much and forgets by itself.
func (r *Ring) Clone() *Ring {
	clone := *r
	clone.secret = bytes.Clone(r.secret)
	return &clone
}

// Forget overwrites the passphrase, as far as that can be done in Go.
func (r *Ring) Forget() {
	clear(r.secret)
	r.secret = nil
}

// key returns the key in the file, and whether it is encrypted.
func (r *Ring) key(path string) (key crypto.PrivateKey, encrypted bool, err error) {
	b, err := ReadKey(path)
	if err != nil {
		return nil, false, err
	}
	defer clear(b)
	if encrypted = Encrypted(b); encrypted {
		key, err = r.decrypt(b, path)
	} else if key, err = Parse(b, nil); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return key, encrypted, err
}

// decrypt decrypts the key in b, which path held, with the passphrase that is
// remembered, or another one that it then remembers.
func (r *Ring) decrypt(b []byte, path string) (crypto.PrivateKey, error) {
	if r.secret != nil {
		key, err := r.open(b, r.secret)
		if err == nil {
			return key, nil
		}
		if !errors.Is(err, ErrPassphrase) || r.File != "" {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	secret, err := r.find(path)
	if err != nil {
		return nil, err
	}
	key, err := r.open(b, secret)
	if err != nil {
		clear(secret)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.Forget()
	r.secret = secret
	return key, nil
}

// open decrypts a key with a copy of the secret, since Parse clears what it is
// given.
func (r *Ring) open(b, secret []byte) (crypto.PrivateKey, error) {
	return Parse(b, func() ([]byte, error) { return bytes.Clone(secret), nil })
}

// find returns the passphrase from the first source that there is.
func (r *Ring) find(path string) ([]byte, error) {
	if r.File != "" {
		return ReadLine(r.File)
	}
	secret, err := r.credential()
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if r.Ask == nil {
		return nil, fmt.Errorf("%s: %w: the key is encrypted; give its passphrase in a file (keys.passphrase_file or --passphrase-file), "+
			"as the systemd credential %s, or on a terminal", path, ErrPassphrase, Credential)
	}
	return r.Ask("Passphrase for " + path + ": ")
}

// credential returns the passphrase that systemd has brought. There is none:
// [fs.ErrNotExist].
func (r *Ring) credential() ([]byte, error) {
	if r.Credentials == "" {
		return nil, fs.ErrNotExist
	}
	return readLine(filepath.Join(r.Credentials, Credential), nil)
}
