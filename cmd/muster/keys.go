package main

import (
	"context"
	"errors"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/keyfile"
)

// keyFlags are the flags of verbs that read encrypted keys.
type keyFlags struct {
	passphraseFile string
}

func (f *keyFlags) add(c *kingpin.CmdClause) {
	c.Flag("passphrase-file", "File with the passphrase of encrypted keys; else keys.passphrase_file, the systemd credential muster-passphrase, or the terminal.").
		PlaceHolder("FILE").StringVar(&f.passphraseFile)
}

// askPassphrase asks a person for the passphrase of a key.
func askPassphrase(ctx context.Context, key string) ([]byte, error) {
	secret, err := cli.AskSecret(ctx, os.Stdin, os.Stderr, "Passphrase for "+key+": ")
	if errors.Is(err, cli.ErrNoTerminal) {
		err = errors.New("a passphrase is needed: give --passphrase-file FILE, or answer on a terminal")
	}
	return secret, err
}

// ring returns what reads keys until ctx ends, and finds the passphrase: in the file,
// as systemd's credential, or by asking, if anybody is there.
func (f *keyFlags) ring(ctx context.Context) keyfile.Ring {
	r := keyfile.Ring{File: f.passphraseFile, Credentials: os.Getenv("CREDENTIALS_DIRECTORY")}
	r.Wait = func(read func() ([]byte, error)) ([]byte, error) { return now(ctx, read) }
	if cli.IsTerminal(os.Stdin) {
		r.Ask = func(prompt string) ([]byte, error) { return cli.AskSecret(ctx, os.Stdin, os.Stderr, prompt) }
	}
	return r
}

// choose returns the passphrase for new keys: from the file, or asked for twice.
func (f *keyFlags) choose(ctx context.Context) ([]byte, error) {
	if f.passphraseFile != "" {
		return readLine(ctx, f.passphraseFile)
	}
	secret, err := cli.AskSecretTwice(ctx, os.Stdin, os.Stderr, "Passphrase for the new keys: ")
	if errors.Is(err, cli.ErrNoTerminal) {
		err = errors.New("a passphrase is needed: give --passphrase-file FILE, or answer on a terminal")
	}
	return secret, err
}
