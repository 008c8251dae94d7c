// Package signing is shared by the verbs that sign and read tokens: it reads keys, token files, and the flags for
// brokers, authority and seal key.
package signing

import (
	"context"
	"crypto"
	"crypto/ecdh"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/seal"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
)

// ErrPEM means that a file holds a key or a certificate, not a token.
var ErrPEM = errors.New("PEM, not a token")

// ReadToken returns the text of a token in a file. The error may wrap [ErrPEM].
func ReadToken(path string) (string, error) {
	b, err := inputfile.ReadText(path, inputfile.Typed)
	if err != nil {
		return "", verb.OrMissing(err, "give the file that `muster jwt sign` wrote")
	}
	if strings.HasPrefix(string(b), "-----BEGIN ") {
		return "", fmt.Errorf("%s: %w", path, ErrPEM)
	}
	return inputfile.Line(b, path, "a token")
}

// SignerRemedy tells which file has the key that signs tokens.
const SignerRemedy = "give the signer-key.pem that `muster provisioner init` made"

// Key reads a private key, and its passphrase if it is encrypted: from passphraseFile, from MUSTER_PASSPHRASE, or from
// the terminal. If path is missing, the error ends with remedy.
func Key(ctx context.Context, path, passphraseFile, remedy string) (crypto.Signer, error) {
	b, err := keyfile.ReadKey(path, inputfile.Typed)
	if err != nil {
		return nil, verb.OrMissing(err, remedy)
	}
	key, err := jwt.ParsePrivateKey(b, func() ([]byte, error) {
		if passphraseFile != "" {
			return keyfile.ReadLine(passphraseFile, inputfile.Typed)
		}
		if env := os.Getenv("MUSTER_PASSPHRASE"); env != "" {
			return []byte(env), nil
		}
		secret, err := cli.AskSecret(ctx, os.Stdin, os.Stderr, "Passphrase for "+path+": ")
		if errors.Is(err, cli.ErrNoTerminal) {
			err = errors.New("a passphrase is needed: give --passphrase-file FILE, set MUSTER_PASSPHRASE, " +
				"or answer on a terminal")
		}
		return secret, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// Brokers returns the brokers of --urls, separated by commas, and all mistakes in --urls and --srv.
func Brokers(urls []string, srv string) (string, error) {
	var errs []error
	var all []string
	for _, list := range urls {
		for u := range strings.SplitSeq(list, ",") {
			if u = strings.TrimSpace(u); u != "" {
				all = append(all, u)
				errs = append(errs, verb.Flag("urls", jwt.CheckURL(u)))
			}
		}
	}
	if srv != "" {
		if _, err := wire.ParseName(srv); err != nil {
			errs = append(errs, fmt.Errorf("--srv: %q is not a domain such as provision.example.net; "+
				"the names of SRV records are derived from it", srv))
		}
	}
	switch {
	case len(all) > 0 && srv != "":
		errs = append(errs, errors.New("--urls and --srv: give one of them, since nodes refuse a token with both"))
	case len(all) == 0 && srv == "":
		errs = append(errs, errors.New("no brokers: give --urls HOST:PORT,... or --srv DOMAIN"))
	}
	return strings.Join(all, ","), errors.Join(errs...)
}

// Pin sets l from the files of --ca and --seal, if given. The error lists the mistakes of both.
func Pin(l *jwt.Limits, ca, sealTo string) error {
	var noCA, noSeal error
	if ca != "" {
		l.CA, noCA = certificatePin(ca)
	}
	if sealTo != "" {
		l.Seal, noSeal = readSealKey(sealTo)
	}
	return errors.Join(verb.Flag("ca", noCA), verb.Flag("seal", noSeal))
}

// certificatePin returns the SHA-256 of the one certificate in a file.
func certificatePin(path string) (string, error) {
	certs, err := inputfile.Parse(path, inputfile.Typed, ca.ParseCertificates)
	switch {
	case err != nil:
		return "", err
	case len(certs) > 1:
		return "", fmt.Errorf("%s: %d certificates, want only that of the authority", path, len(certs))
	}
	cert := certs[0]
	if !cert.IsCA {
		return "", fmt.Errorf("%s: the certificate of %q is not that of an authority", path, cert.Subject.CommonName)
	}
	if cert.CheckSignatureFrom(cert) != nil { // no node would accept any authority
		return "", fmt.Errorf("%s: %q is not self-signed, and nodes pin the root: give that, such as ca/root.pem", path,
			cert.Subject.CommonName)
	}
	return wire.Sum(cert.Raw), nil
}

// readSealKey returns the key of --seal: its text, or a file with the text or a public key in PEM.
func readSealKey(given string) (string, error) {
	if key, err := seal.ParsePublicKey(given); err == nil {
		return key.String(), nil
	}
	b, err := inputfile.ReadText(given, inputfile.Typed)
	if err != nil {
		return "", err
	}
	var text string
	block, _ := pem.Decode(b)
	if block == nil {
		text, err = inputfile.Line(b, given, "a public key")
	} else {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return "", fmt.Errorf("%s: a private key, which only provisioners need; "+
				"give the public key, such as the seal.pub that init made", given)
		}
		public, _ := x509.ParsePKIXPublicKey(block.Bytes)
		key, ok := public.(*ecdh.PublicKey) // RFC 8410
		if !ok || key.Curve() != ecdh.X25519() {
			return "", fmt.Errorf("%s: not an X25519 key; give the public half of the provisioner's seal key, "+
				"such as the seal.pub that init made", given)
		}
		text = base64.RawURLEncoding.EncodeToString(key.Bytes())
	}
	if err != nil {
		return "", err
	}
	key, err := seal.ParsePublicKey(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", given, err)
	}
	return key.String(), nil
}
