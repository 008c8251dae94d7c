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

type keyPair struct {
	nkeys.KeyPair

	public string
}

type keyPairs struct{ issuer, xkey, provisioner, system keyPair }

// pairs returns an error that lists every bad seed.
func (k Keys) pairs() (p keyPairs, err error) {
	var errs []error
	for _, of := range []struct {
		what   string
		secret wire.Secret
		kind   nkeys.PrefixByte
		want   string
		dst    *keyPair
	}{
		{"issuer", k.Issuer, nkeys.PrefixByteAccount, "an account nkey (SA...)", &p.issuer},
		{"xkey", k.XKey, nkeys.PrefixByteCurve, "an xkey (SX...)", &p.xkey},
		{"credentials", k.Provisioner, nkeys.PrefixByteUser, "a user nkey (SU...)", &p.provisioner},
		{"system credentials", k.System, nkeys.PrefixByteUser, "a user nkey (SU...)", &p.system},
	} {
		prefix, _, err := nkeys.DecodeSeed([]byte(of.secret))
		if err == nil {
			of.dst.KeyPair, err = nkeys.FromSeed([]byte(of.secret))
		}
		if err == nil {
			of.dst.public, err = of.dst.PublicKey()
		}
		if err != nil || prefix != of.kind {
			errs = append(errs, fmt.Errorf("%s: %w, want the seed of %s", of.what, ErrKey, of.want))
		}
	}
	return p, errors.Join(errs...)
}

func (p keyPair) login() nats.Option { return nats.Nkey(p.public, p.Sign) }
