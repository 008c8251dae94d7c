package verb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
)

// OrMissing appends remedy to err if a file is missing.
func OrMissing(err error, remedy string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", err, remedy)
	}
	return err
}

// OrNoSetup adds what to do if the configuration is missing, or if a file may not be read. It returns nil for nil.
func OrNoSetup(config string, err error) error {
	if err == nil {
		return nil
	}
	if _, missing := os.Stat(config); errors.Is(missing, fs.ErrNotExist) {
		return fmt.Errorf("configuration of the provisioner: %w: make one with `muster provisioner init`, "+
			"or name it with --config", missing)
	}
	return OrNotYours(err)
}

// OrNotYours appends what to do to err if a file may not be read.
func OrNotYours(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run this as root or as the provisioner's user", err)
	}
	return err
}

// KeyFlags are the flags of verbs that read encrypted keys.
type KeyFlags struct{ PassphraseFile string }

// AddFlags adds them.
func (f *KeyFlags) AddFlags(c *kingpin.CmdClause) {
	cli.Flag(c, "passphrase-file").StringVar(&f.PassphraseFile)
}

// Ring returns a reader of keys. The passphrase comes from the file, from systemd's credential, or from the terminal
// until ctx ends.
func (f *KeyFlags) Ring(ctx context.Context) keyfile.Ring {
	r := keyfile.Ring{File: f.PassphraseFile, Credentials: os.Getenv("CREDENTIALS_DIRECTORY")}
	if cli.IsTerminal(os.Stdin) {
		r.Ask = func(prompt string) ([]byte, error) { return cli.AskSecret(ctx, os.Stdin, os.Stderr, prompt) }
	}
	return r
}

// Choose returns the passphrase for new keys: from the file, or asked for twice.
func (f *KeyFlags) Choose(ctx context.Context) ([]byte, error) {
	if f.PassphraseFile != "" {
		return keyfile.ReadLine(f.PassphraseFile, inputfile.Typed)
	}
	secret, err := cli.AskSecretTwice(ctx, os.Stdin, os.Stderr, "Passphrase for the new keys: ")
	if errors.Is(err, cli.ErrNoTerminal) {
		err = errors.New("a passphrase is needed: give --passphrase-file FILE, or answer on a terminal")
	}
	return secret, err
}
