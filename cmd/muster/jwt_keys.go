package main

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/jwt"
)

// keysFlags are the flags of keys.
var keysFlags = []string{"type", "bits", "encrypt", "passphrase-file", "force"}

func (v *jwtVerb) addKeysFlags(c *kingpin.CmdClause) {
	v.flag(c, "type", "Keys: kind of the keys, ed25519, or rsa for Choria before 0.27.").Default("ed25519").EnumVar(&v.keyType, "ed25519", "rsa")
	cli.Int(v.flag(c, "bits", "Keys: size of an RSA key, 2048 to 8192.").Default("4096"), &v.bits)
	v.flag(c, "encrypt", "Keys: encrypt the private key with a passphrase.").BoolVar(&v.encrypt)
}

// checkKeys returns what is wrong with the command line of keys.
func (v *jwtVerb) checkKeys() error {
	mistakes := v.refuse("keys", keysFlags)
	if v.given("bits") && v.keyType != "rsa" {
		mistakes = append(mistakes, errors.New("--bits is for --type rsa only"))
	}
	if v.bits < 2048 || v.bits > 8192 {
		mistakes = append(mistakes, fmt.Errorf("--bits is %d, want 2048 to 8192", v.bits))
	}
	if v.given("passphrase-file") && !v.encrypt {
		mistakes = append(mistakes, errors.New("--passphrase-file without --encrypt"))
	}
	if filepath.Clean(v.file) == filepath.Clean(v.key) {
		mistakes = append(mistakes, fmt.Errorf("%q is to be both the private and the public key", v.file))
	}
	return errors.Join(mistakes...)
}

// runKeys makes a pair of keys: both files, or neither.
func (v *jwtVerb) runKeys(ctx context.Context) error {
	for _, path := range []string{v.file, v.key} {
		if err := cli.CheckNew(path, v.force); err != nil {
			return err
		}
	}
	private, public, id, err := v.makeKeys(ctx)
	if err != nil {
		return err
	}
	// The public key is on its disk before the private one is put in the place of
	// another: all that can fail then is a name.
	written := false
	err = cli.WriteNewBy(v.key, 0o644, v.force, func(w io.Writer) error {
		if _, err := w.Write(public); err != nil {
			return err
		}
		err := cli.WriteNew(v.file, private, 0o600, v.force)
		written = err == nil
		return err
	})
	if err != nil {
		if written && !v.force {
			err = errors.Join(err, os.Remove(v.file)) // ours, made a moment ago
		}
		return err
	}
	cli.Say(os.Stderr, program, "Saved private key to %s and public key to %s, SHA-256 %s", v.file, v.key, id)
	return nil
}

// makeKeys returns a new pair in PEM and the id of the public key.
func (v *jwtVerb) makeKeys(ctx context.Context) (private, public []byte, id jwt.SignerID, err error) {
	var passphrase []byte
	if v.encrypt {
		if passphrase, _, err = v.passphrase(ctx, "Passphrase for "+v.file+": ", cli.AskSecretTwice); err != nil {
			return nil, nil, "", err
		}
		defer clear(passphrase)
	}
	var key crypto.Signer
	if v.keyType == "rsa" {
		key, err = makeRSA(ctx, v.bits)
	} else {
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		return nil, nil, "", fmt.Errorf("make %s key: %w", v.keyType, err)
	}
	if private, err = jwt.MarshalPrivateKey(key, passphrase); err != nil {
		return nil, nil, "", err
	}
	if public, err = jwt.MarshalPublicKey(key.Public()); err != nil {
		return nil, nil, "", err
	}
	id, err = jwt.Fingerprint(key.Public())
	return private, public, id, err
}

// makeRSA makes an RSA key, which may take a minute, until ctx ends, whose error it then
// returns; see now.
func makeRSA(ctx context.Context, bits int) (crypto.Signer, error) {
	return now(ctx, func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, bits) })
}
