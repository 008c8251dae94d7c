package broker

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"muster/internal/wire"
)

// ErrKey means a seed of the wrong form. The error text contains no seed.
var ErrKey = errors.New("not a key of this kind")

const (
	wantUser   = "the seed of a user nkey (SU...)"
	wantIssuer = "the seed of an account nkey (SA...)"
	wantXKey   = "the seed of an xkey (SX...)"
)

func login(secret wire.Secret) (nats.Option, error) {
	key, err := parseSeed(secret, nkeys.PrefixByteUser, wantUser)
	if err != nil {
		return nil, err
	}
	public, err := key.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return nats.Nkey(public, key.Sign), nil
}

func parseSeed(secret wire.Secret, kind nkeys.PrefixByte, want string) (nkeys.KeyPair, error) {
	prefix, _, err := nkeys.DecodeSeed([]byte(secret))
	if err != nil || prefix != kind {
		return nil, fmt.Errorf("%w, want %s", ErrKey, want)
	}
	key, err := nkeys.FromSeed([]byte(secret))
	if err != nil {
		return nil, fmt.Errorf("%w, want %s", ErrKey, want)
	}
	return key, nil
}

// Keys are the provisioners' secrets. With them, any client can be admitted.
type Keys struct {
	// Issuer signs admissions.
	Issuer wire.Secret

	// XKey decrypts callout requests, which hold tokens.
	XKey wire.Secret

	// Provisioner and System are the logins to MUSTER and SYS.
	Provisioner wire.Secret
	System      wire.Secret

	// Routes is the password between servers of a cluster. A certificate is not enough, because every node has one.
	Routes wire.Secret
}

// NewKeys generates keys.
func NewKeys() (Keys, error) {
	var k Keys
	for _, of := range []struct {
		create func() (nkeys.KeyPair, error)
		dst    *wire.Secret
	}{
		{nkeys.CreateAccount, &k.Issuer},
		{nkeys.CreateCurveKeys, &k.XKey},
		{nkeys.CreateUser, &k.Provisioner},
		{nkeys.CreateUser, &k.System},
	} {
		key, err := of.create()
		if err != nil {
			return Keys{}, fmt.Errorf("nkey: %w", err)
		}
		text, err := key.Seed()
		if err != nil {
			return Keys{}, fmt.Errorf("nkey: %w", err)
		}
		*of.dst = wire.Secret(text)
	}
	k.Routes = wire.Secret(rand.Text())
	return k, nil
}

type publicKeys struct{ issuer, xkey, provisioner, system string }

func (k Keys) public() (p publicKeys, err error) {
	var errs []error
	for _, half := range []struct {
		what   string
		secret wire.Secret
		kind   nkeys.PrefixByte
		want   string
		dst    *string
	}{
		{"issuer", k.Issuer, nkeys.PrefixByteAccount, wantIssuer, &p.issuer},
		{"xkey", k.XKey, nkeys.PrefixByteCurve, wantXKey, &p.xkey},
		{"credentials", k.Provisioner, nkeys.PrefixByteUser, wantUser, &p.provisioner},
		{"system credentials", k.System, nkeys.PrefixByteUser, wantUser, &p.system},
	} {
		key, err := parseSeed(half.secret, half.kind, half.want)
		if err == nil {
			*half.dst, err = key.PublicKey()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", half.what, err))
		}
	}
	return p, errors.Join(errs...)
}
