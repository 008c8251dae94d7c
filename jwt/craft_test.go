package jwt_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // SHA-384
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/jwt"
)

// noon is the time of the tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// edKey returns the same key for the same name.
func edKey(name string) ed25519.PrivateKey {
	seed := []byte(strings.Repeat(name+".", ed25519.SeedSize))[:ed25519.SeedSize]
	return ed25519.NewKeyFromSeed(seed)
}

// Keys without a seed, made once per run.
var (
	rsaKey = sync.OnceValue(func() *rsa.PrivateKey { return mustRSA("rsa-2048") })
	ecKey  = sync.OnceValue(func() *ecdsa.PrivateKey { return mustEC(elliptic.P256()) })
)

// mustRSA reads a key from testdata: RSA keys are slow to make, above all with the race detector.
func mustRSA(name string) *rsa.PrivateKey {
	text, err := os.ReadFile(filepath.Join("testdata", name+".pem"))
	if err != nil {
		panic(err)
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		panic(err)
	}
	return key.(*rsa.PrivateKey)
}

func mustEC(curve elliptic.Curve) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

type signFunc func(input string) []byte

func withEd(key ed25519.PrivateKey) signFunc {
	return func(input string) []byte { return ed25519.Sign(key, []byte(input)) }
}

func withRSA(key *rsa.PrivateKey, hash crypto.Hash) signFunc {
	return func(input string) []byte {
		h := hash.New()
		h.Write([]byte(input))
		sig, err := rsa.SignPKCS1v15(nil, key, hash, h.Sum(nil))
		if err != nil {
			panic(err)
		}
		return sig
	}
}

func withPSS(key *rsa.PrivateKey) signFunc {
	return func(input string) []byte {
		sum := sha256.Sum256([]byte(input))
		sig, err := rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], nil)
		if err != nil {
			panic(err)
		}
		return sig
	}
}

func withEC(key *ecdsa.PrivateKey) signFunc {
	return func(input string) []byte {
		hash := crypto.SHA256
		if key.Curve == elliptic.P384() {
			hash = crypto.SHA384
		}
		h := hash.New()
		h.Write([]byte(input))
		r, s, err := ecdsa.Sign(rand.Reader, key, h.Sum(nil))
		if err != nil {
			panic(err)
		}
		size := (key.Curve.Params().BitSize + 7) / 8
		out := make([]byte, 2*size)
		r.FillBytes(out[:size])
		s.FillBytes(out[size:])
		return out
	}
}

func withHMAC(secret []byte) signFunc {
	return func(input string) []byte {
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(input))
		return h.Sum(nil)
	}
}

func unsigned(string) []byte { return nil }

// craft makes a token of any header and body.
func craft(header, body string, sign signFunc) string {
	input := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(body))
	return input + "." + base64.RawURLEncoding.EncodeToString(sign(input))
}

// Valid headers and claims.
const (
	edHeader = `{"alg":"EdDSA","typ":"JWT"}`
	goodBody = `{"cht":"s3cret","chs":false,"chu":"prov1.example.net:4222","chpd":true,` +
		`"iss":"choria cli","sub":"choria_provisioning","iat":1577723210,"nbf":1577723210}`
)

// verifier returns a verifier at noon over the signers.
func verifier(tb testing.TB, signers ...jwt.Signer) *jwt.Verifier {
	tb.Helper()
	v, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: signers, Now: func() time.Time { return noon }})
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// goodClaims returns valid claims.
func goodClaims() jwt.Claims {
	return jwt.Claims{
		Token: "s3cret", Brokers: "prov1.example.net:4222", Default: true, Organization: "choria",
		Purpose: jwt.Purpose, Subject: jwt.Purpose, Issuer: "muster", JTI: "t1",
		IssuedAt: noon.Add(-time.Hour), NotBefore: noon.Add(-time.Hour), ExpiresAt: noon.Add(time.Hour),
	}
}

func sign(tb testing.TB, key crypto.Signer, c jwt.Claims) string {
	tb.Helper()
	text, err := jwt.Sign(key, c)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}
