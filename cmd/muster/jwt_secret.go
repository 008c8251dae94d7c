package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/jwt"
)

// readToken returns the secret for the token from where the flags say, or asks.
func (v *jwtVerb) readToken(ctx context.Context) (wire.Secret, error) {
	switch {
	case v.given("token"):
		return wire.Secret(v.token), nil
	case v.given("token-file"):
		b, err := readLine(ctx, v.tokenFile)
		return wire.Secret(b), err
	}
	b, err := cli.AskSecretTwice(ctx, os.Stdin, os.Stderr, "Secret for the token: ")
	return wire.Secret(b), err
}

// readPrivateKey reads a private key that nobody else may read, and its
// passphrase from where the flags say if it is encrypted. A person gets three
// tries.
func (v *jwtVerb) readPrivateKey(ctx context.Context, path string) (crypto.Signer, error) {
	b, err := readSigningKey(ctx, path)
	if err != nil {
		return nil, err
	}
	asked := false
	ask := func() (secret []byte, err error) {
		secret, asked, err = v.passphrase(ctx, "Passphrase for "+path+": ", cli.AskSecret)
		return secret, err
	}
	var key crypto.Signer
	const tries = 3
	for try := 1; try <= tries; try++ {
		if try > 1 {
			cli.Say(os.Stderr, program, "wrong passphrase, try again (%d of %d)", try, tries)
		}
		if key, err = jwt.ParsePrivateKey(b, ask); !asked || !errors.Is(err, jwt.ErrPassphrase) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// asker is one of the ways of asking in package cli.
type asker func(ctx context.Context, in *os.File, out io.Writer, prompt string) ([]byte, error)

// passphrase returns the passphrase of a key, and whether a person gave it.
func (v *jwtVerb) passphrase(ctx context.Context, prompt string, ask asker) (secret []byte, asked bool, err error) {
	if v.passphraseFile != "" {
		secret, err = readLine(ctx, v.passphraseFile)
		return secret, false, err
	}
	if env := os.Getenv("MUSTER_PASSPHRASE"); env != "" {
		return []byte(env), false, nil
	}
	secret, err = ask(ctx, os.Stdin, os.Stderr, prompt)
	if errors.Is(err, cli.ErrNoTerminal) {
		err = errors.New("a passphrase is needed: give --passphrase-file FILE, set MUSTER_PASSPHRASE, or answer on a terminal")
	}
	return secret, err == nil, err
}
