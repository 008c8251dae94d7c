package main

import (
	"context"
	"crypto/ecdh"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"muster/internal/seal"
	"muster/jwt"
)

// readSealKey returns the key that --seal gives: its text, or a file with that,
// as init writes it, or with a public key in PEM, as openssl does.
func readSealKey(ctx context.Context, given string) (seal.PublicKey, error) {
	if key, err := seal.ParsePublicKey(given); err == nil {
		return key, nil
	}
	b, err := readFile(ctx, given)
	if err != nil {
		return seal.PublicKey{}, fmt.Errorf("--seal: %w", err)
	}
	text := strings.TrimSpace(string(b))
	if block, _ := pem.Decode(b); block != nil {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return seal.PublicKey{}, fmt.Errorf("--seal: %s: is a private key, which only provisioners need; give the public one, such as the seal.pub that init made", given)
		}
		if text = x25519Text(block.Bytes); text == "" {
			return seal.PublicKey{}, fmt.Errorf("--seal: %s: is no X25519 key; give the public half of the provisioner's seal key, such as the seal.pub that init made", given)
		}
	}
	key, err := seal.ParsePublicKey(text)
	if err != nil {
		return seal.PublicKey{}, fmt.Errorf("--seal: %s: %w", given, err)
	}
	return key, nil
}

// pinned reads what --ca and --seal name, if they name anything, into l. The error has
// what is wrong with both.
func pinned(ctx context.Context, l *jwt.Limits, ca, sealTo string) error {
	var errs []error
	if ca != "" {
		pin, err := certificatePin(ctx, ca)
		l.CA, errs = pin, append(errs, err)
	}
	if sealTo != "" {
		key, err := readSealKey(ctx, sealTo)
		l.Seal, errs = key.String(), append(errs, err)
	}
	return errors.Join(errs...)
}

// x25519Text returns the key in a SubjectPublicKeyInfo (RFC 8410) in the form of
// a token, or "" if it is no X25519 key.
func x25519Text(der []byte) string {
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return ""
	}
	key, ok := public.(*ecdh.PublicKey)
	if !ok || key.Curve() != ecdh.X25519() {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(key.Bytes())
}
