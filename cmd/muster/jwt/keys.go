package jwt

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/signing"
	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/keyfile"
	"muster/jwt"
)

const keysHelp = `Writes a private key, readable by its owner only, and its public half, which is what
provisioner.yaml's signers or 'muster signer add' take: both, or neither.

  %[1]s keys signer-key.pem signer.pem
  %[1]s keys signer-key.pem signer.pem --type rsa --encrypt`

// rsaBits is the size of RSA keys.
const rsaBits = 4096

// keysFlags are the flags of keys.
type keysFlags struct {
	kind    string
	encrypt bool
}

func (v *command) addKeysFlags(c *kingpin.CmdClause) {
	cli.Enum(v.flag(c, "Keys", "type", "kind of the keys: ed25519, or rsa, of 4096 bits, for Choria before 0.27.").Default("ed25519"), &v.keys.kind, "ed25519", "rsa")
	v.flag(c, "Keys", "encrypt", "encrypt the private key with a passphrase.").BoolVar(&v.keys.encrypt)
}

// checkKeys returns what is wrong with the command line of keys.
func (v *command) checkKeys() error {
	mistakes := []error{v.refuse("keys")}
	if v.given("passphrase-file") && !v.keys.encrypt {
		mistakes = append(mistakes, errors.New("--passphrase-file without --encrypt"))
	}
	if filepath.Clean(v.file) == filepath.Clean(v.key) {
		mistakes = append(mistakes, fmt.Errorf("%q is to be both the private and the public key", v.file))
	}
	return errors.Join(mistakes...)
}

// runKeys makes a pair of keys: both files, or neither.
func (v *command) runKeys(ctx context.Context) error {
	for _, path := range []string{v.file, v.key} {
		if err := cli.CheckNew(path, v.force); err != nil {
			return err
		}
	}
	private, public, id, err := v.makeKeys(ctx)
	if err != nil {
		return err
	}
	if err := cli.WriteNew(v.key, public, 0o644, v.force); err != nil {
		return err
	}
	// Last: a private key that is replaced is lost for good.
	if err := cli.WriteNew(v.file, private, 0o600, v.force); err != nil {
		if !v.force {
			err = errors.Join(err, os.Remove(v.key)) // ours, made a moment ago
		}
		return err
	}
	verb.Say("Saved private key to %s and public key to %s, SHA-256 %s", v.file, v.key, id)
	return nil
}

// makeKeys returns a new pair in PEM and the id of the public key.
func (v *command) makeKeys(ctx context.Context) (private, public []byte, id jwt.SignerID, err error) {
	var passphrase []byte
	if v.keys.encrypt {
		if passphrase, _, err = signing.Passphrase(ctx, v.passphraseFile, "Passphrase for "+v.file+": ", cli.AskSecretTwice); err != nil {
			return nil, nil, "", err
		}
		defer clear(passphrase)
	}
	var key crypto.Signer
	if v.keys.kind == "rsa" {
		key, err = rsa.GenerateKey(rand.Reader, rsaBits)
	} else {
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		return nil, nil, "", fmt.Errorf("make %s key: %w", v.keys.kind, err)
	}
	if private, err = keyfile.Marshal(key, passphrase); err != nil {
		return nil, nil, "", err
	}
	if public, err = jwt.MarshalPublicKey(key.Public()); err != nil {
		return nil, nil, "", err
	}
	id, err = jwt.Fingerprint(key.Public())
	return private, public, id, err
}
