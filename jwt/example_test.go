package jwt_test

import (
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

func ExampleVerifier_Verify() {
	key := edKey("k1")
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	claims := jwt.Claims{
		Token: "toomanysecrets", Brokers: "prov1.example.net:4222", Default: true,
		Purpose: jwt.Purpose, JTI: "t1", ExpiresAt: now.Add(time.Hour),
	}
	if err := claims.SetLimits(jwt.Limits{Identities: []wire.Pattern{"web*.example.net"}}); err != nil {
		fmt.Println(err)
		return
	}
	text, err := jwt.Sign(key, claims)
	if err != nil {
		fmt.Println(err)
		return
	}

	verifier, err := jwt.NewVerifier(jwt.VerifierConfig{
		Signers: []jwt.Signer{{Name: "ops", Key: key.Public()}},
		Now:     func() time.Time { return now },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	token, err := verifier.Verify(text)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(token.SignerName, token.JTI, token.Token)
	fmt.Println(token.Admits("web1.example.net", ""))
	fmt.Println(token.Admits("db1.example.net", ""))
	// Output:
	// ops t1 (secret)
	// <nil>
	// token does not cover the identity: "db1.example.net", token is for ["web*.example.net"]
}
