package jwt_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/jwt"
)

// operatorClaims is a good token's claims at noon.
func operatorClaims(at time.Time) jwt.OperatorClaims {
	return jwt.OperatorClaims{
		Operator:  "anna",
		Audience:  "installation",
		ID:        "1",
		IssuedAt:  at,
		ExpiresAt: at.Add(time.Hour),
	}
}

// verifyOperator parses and verifies.
func verifyOperator(text string, key crypto.PublicKey, at time.Time) (*jwt.OperatorClaims, error) {
	token, err := jwt.ParseOperator(text)
	if err != nil {
		return nil, err
	}
	return token.Verify(key, "installation", at)
}

func TestOperatorsSignTheirTokens(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := []crypto.Signer{curve, edwards, mustEC(elliptic.P384())}
	for i, key := range keys {
		text, err := jwt.SignOperator(key, operatorClaims(at))
		if err != nil {
			t.Fatal(err)
		}
		got, err := verifyOperator(text, key.Public(), at)
		if err != nil || *got != operatorClaims(at) {
			t.Errorf("%T: %+v, %v", key, got, err)
		}
		if _, err := verifyOperator(text, key.Public(), at.Add(time.Hour)); !errors.Is(err, jwt.ErrOperatorToken) {
			t.Errorf("%T when it is over: %v", key, err)
		}
		for j, other := range keys {
			if _, err := verifyOperator(text, other.Public(), at); (err == nil) != (i == j) {
				t.Errorf("%T with the key of %T: %v", key, other, err)
			}
		}
	}
	if _, err := jwt.SignOperator(rsaKey(), operatorClaims(at)); !errors.Is(err, jwt.ErrKey) {
		t.Errorf("RSA: %v", err)
	}
}

func TestOperatorTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := at.Unix()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := fmt.Sprintf(`{"purpose":"muster_operator","sub":"anna","aud":"installation","jti":"1","iat":%d,"exp":%d}`,
		now, now+3600)
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	signed := func(header, claims string) string {
		input := part(header) + "." + part(claims)
		sum := sha256.Sum256([]byte(input))
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		signature := make([]byte, 64)
		r.FillBytes(signature[:32])
		s.FillBytes(signature[32:])
		return input + "." + base64.RawURLEncoding.EncodeToString(signature)
	}
	const es256 = `{"alg":"ES256","typ":"JWT"}`
	if _, err := verifyOperator(signed(es256, good), key.Public(), at); err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	hs256 := part(`{"alg":"HS256"}`) + "." + part(good)
	mac := hmac.New(sha256.New, public)
	mac.Write([]byte(hs256))
	edit := func(from, to string) string { return signed(es256, strings.Replace(good, from, to, 1)) }
	provisioning, err := jwt.Sign(key, jwt.Claims{Purpose: jwt.Purpose, Subject: jwt.Purpose})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		text  string
		kind  error
		words string
	}{
		"nothing": {"", jwt.ErrMalformed, ""},
		"none": {part(`{"alg":"none"}`) + "." + part(good) + ".", jwt.ErrUnsupported,
			"algorithm \"none\""},
		"none, signed": {signed(`{"alg":"none"}`, good), jwt.ErrUnsupported, "algorithm \"none\""},
		"HS256 with the key": {hs256 + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), jwt.ErrUnsupported,
			"algorithm \"HS256\""},
		"another algorithm":    {signed(`{"alg":"EdDSA"}`, good), jwt.ErrUnsupported, "algorithm \"EdDSA\" with a key"},
		"a key of its own":     {signed(`{"alg":"ES256","jwk":{}}`, good), jwt.ErrUnsupported, "jwk"},
		"critical extensions":  {signed(`{"alg":"ES256","crit":["x"]}`, good), jwt.ErrUnsupported, "crit"},
		"a provisioning token": {provisioning, jwt.ErrOperatorToken, "purpose"},
		"another purpose":      {edit("muster_operator", "choria_provisioning"), jwt.ErrOperatorToken, "purpose"},
		"another audience":     {edit(`"installation"`, `"other"`), jwt.ErrOperatorToken, "aud is [\"other\"]"},
		"two audiences": {edit(`"installation"`, `["installation","other"]`), jwt.ErrOperatorToken,
			"aud is [\"installation\" \"other\"]"},
		"no audience": {edit(`"aud":"installation",`, ``), jwt.ErrOperatorToken, "aud is []"},
		"no jti":      {edit(`"jti":"1",`, ``), jwt.ErrOperatorToken, "jti of 0 bytes"},
		"a long jti": {edit(`"jti":"1"`, `"jti":"`+strings.Repeat("1", 65)+`"`), jwt.ErrOperatorToken,
			"jti of 65 bytes"},
		"no exp": {edit(fmt.Sprintf(`,"exp":%d`, now+3600), ``), jwt.ErrOperatorTime, "it has no exp"},
		"two hours": {edit(fmt.Sprint(now+3600), fmt.Sprint(now+7200)), jwt.ErrOperatorTime,
			"want 1h0m0s at most"},
		"no iat": {edit(fmt.Sprintf(`"iat":%d,`, now), ``), jwt.ErrOperatorToken, "no iat"},
		"from the future": {edit(fmt.Sprintf(`"iat":%d`, now), fmt.Sprintf(`"iat":%d`, now+600)), jwt.ErrOperatorTime,
			"it is valid from"},
		"not yet":   {edit(`"sub"`, fmt.Sprintf(`"nbf":%d,"sub"`, now+600)), jwt.ErrOperatorTime, "it is valid from"},
		"two names": {edit(`"sub"`, `"sub":"ben","sub"`), jwt.ErrMalformed, "duplicate object member name \"sub\""},
		"changed": {strings.Replace(signed(es256, good), part(good), part(strings.Replace(good, "anna", "root", 1)),
			1), jwt.ErrSignature, ""},
		"huge": {strings.Repeat("a", jwt.MaxTokenBytes+1), jwt.ErrMalformed, "8193 bytes"},
	} {
		if c, err := verifyOperator(tt.text, key.Public(), at); !errors.Is(err, tt.kind) ||
			!strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %+v, %v; want %v, %s", name, c, err, tt.kind, tt.words)
		}
	}
}
