package keyfile

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"muster/internal/inputfile"
)

// Credential is the systemd credential with the passphrase, set by LoadCredentialEncrypted=muster-passphrase:FILE.
const Credential = "muster-passphrase" //nolint:gosec // a name, no secret

// A Ring reads private keys from files. The passphrase comes from File, else from systemd's credentials, else from
// Ask. The ring keeps the last one until [Ring.Forget]. It is not safe for concurrent use.
type Ring struct {
	// File has the passphrase on one line. If set, no other source is used. Optional.
	File string

	// Credentials is the unit's $CREDENTIALS_DIRECTORY. Its access control lists look like group permissions, so
	// permissions are not checked. Optional.
	Credentials string

	// Ask asks an operator for the passphrase. Optional.
	Ask func(prompt string) ([]byte, error)

	// Keys says where the names of keys come from.
	Keys inputfile.Source

	secret []byte
}

// Signer reads a signing key. Its error names the file and may wrap [ErrExposed], [ErrKey] or [ErrPassphrase].
func (r *Ring) Signer(path string) (crypto.Signer, error) {
	signer, passphrase, err := r.SignerAndPassphrase(path)
	clear(passphrase)
	return signer, err
}

// SignerAndPassphrase also returns a copy of the passphrase, nil for an unencrypted key. The caller must clear it.
// The file is read once, so a pipe works.
func (r *Ring) SignerAndPassphrase(path string) (crypto.Signer, []byte, error) {
	key, encrypted, err := r.key(path)
	if err != nil {
		return nil, nil, err
	}
	signer, ok := key.(crypto.Signer)
	switch {
	case !ok:
		return nil, nil, fmt.Errorf("%s: %w: %s cannot sign, want an RSA, P-256, P-384 or Ed25519 key",
			path, ErrKey, Kind(key))
	case encrypted:
		return signer, bytes.Clone(r.secret), nil
	}
	return signer, nil, nil
}

// X25519 is like [Ring.Signer], for a seal key.
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

// Clone returns an independent ring with the same passphrase.
func (r *Ring) Clone() *Ring {
	clone := *r
	clone.secret = bytes.Clone(r.secret)
	return &clone
}

// Forget overwrites the passphrase. Copies that Go made may remain.
func (r *Ring) Forget() {
	clear(r.secret)
	r.secret = nil
}

func (r *Ring) key(path string) (key crypto.PrivateKey, encrypted bool, err error) {
	b, err := ReadKey(path, r.Keys)
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

// decrypt tries the kept passphrase first. If that is wrong, it gets another one and keeps it.
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

// open copies the secret, because Parse clears it.
func (r *Ring) open(b, secret []byte) (crypto.PrivateKey, error) {
	return Parse(b, func() ([]byte, error) { return bytes.Clone(secret), nil })
}

func (r *Ring) find(path string) ([]byte, error) {
	if r.File != "" {
		return ReadLine(r.File, inputfile.Typed)
	}
	secret, err := r.credential()
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if r.Ask == nil {
		return nil, fmt.Errorf("%s: %w: a passphrase is needed: give it in a file "+
			"(keys.passphrase_file or --passphrase-file), as the systemd credential %s, or on a terminal",
			path, ErrPassphrase, Credential)
	}
	return r.Ask("Passphrase for " + path + ": ")
}

// credential returns [fs.ErrNotExist] if there is no credential.
func (r *Ring) credential() ([]byte, error) {
	if r.Credentials == "" {
		return nil, fs.ErrNotExist
	}
	return readLine(filepath.Join(r.Credentials, Credential), inputfile.Configured)
}
