package testbed_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/conffile"
	"muster/internal/keyfile"
	"muster/internal/seal"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
)

// TestErrorsOfDecodersHoldNoSecret gives each exported decoder of a secret damaged secrets and searches its errors
// for them.
func TestErrorsOfDecodersHoldNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-and-more"
	sealKey, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sealPEM, err := keyfile.Marshal(sealKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, signer, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := keyfile.Marshal(signer, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Few rounds: as many as usual take seconds with the race detector, each time.
	cheap := exec.CommandContext(t.Context(), "openssl", "pkcs8", "-topk8", "-iter", "100", "-passout", "pass:"+secret)
	cheap.Stdin = bytes.NewReader(keyPEM)
	encrypted, err := cheap.Output()
	if err != nil || !keyfile.Encrypted(encrypted) {
		t.Fatalf("openssl pkcs8: %v: %s", err, encrypted)
	}
	if _, err := jwt.ParsePrivateKey(encrypted, func() ([]byte, error) { return []byte(secret), nil }); err != nil {
		t.Fatal(err)
	}
	message := func(m any) []byte {
		b, err := wire.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	token, err := jwt.Sign(signer, jwt.Claims{
		Token:        secret,
		Brokers:      "localhost:4222",
		Purpose:      jwt.Purpose,
		Subject:      jwt.Purpose,
		Organization: "choria",
	})
	if err != nil {
		t.Fatal(err)
	}
	v, err := unknownSigner()
	if err != nil {
		t.Fatal(err)
	}
	keyLine := strings.Split(string(keyPEM), "\n")[1]
	sealLine := strings.Split(string(sealPEM), "\n")[1]
	files := wire.Files{Configuration: map[string]string{"a": secret}}
	tests := map[string]struct {
		good    []byte
		secrets []string
		decode  func([]byte) error
	}{
		"enroll request": {message(&wire.EnrollRequest{
			ID:       "i",
			Identity: "web1",
			Token:    wire.Secret(secret),
			CSR:      []byte("x"),
			Boot:     "b",
			Facts:    json.RawMessage(`{"f":"` + secret + `"}`),
		}),
			[]string{secret}, func(b []byte) error { _, err := wire.DecodeEnroll(b); return err }},
		"renewal": {message(&wire.RenewRequest{ID: "i", Identity: "web1", CSR: []byte("x"), Boot: "b",
			Facts:      json.RawMessage(`{"f":"` + secret + `"}`),
			Continuity: wire.Continuity{PublicKey: []byte("x"), Signature: []byte("x")}}),
			[]string{secret}, func(b []byte) error { _, err := wire.DecodeRenew(b); return err }},
		"reply": {message(&wire.Reply{ID: "i", Enrolled: &wire.Enrolled{Serial: "1", Files: files}}),
			[]string{secret}, func(b []byte) error { _, err := wire.DecodeReply(b); return err }},
		"applied": {message(&wire.Applied{
			ID:        "i",
			Identity:  "web1",
			Serial:    "1",
			Digest:    "d",
			Signature: []byte(secret),
		}),
			[]string{secret}, func(b []byte) error { _, err := wire.DecodeApplied(b); return err }},
		"token, unverified": {[]byte(token), []string{token[:40], token[len(token)-40:], secret},
			func(b []byte) error { _, err := jwt.Peek(string(b)); return err }},
		"token": {[]byte(token), []string{token[:40], token[len(token)-40:], secret}, func(b []byte) error {
			_, err := v.Verify(string(b))
			return err
		}},
		"private key": {keyPEM, []string{keyLine[20:44]}, func(b []byte) error {
			_, err := jwt.ParsePrivateKey(b, nil)
			return err
		}},
		"encrypted private key": {encrypted, []string{secret, "wrong-" + secret}, func(b []byte) error {
			_, err := jwt.ParsePrivateKey(b, func() ([]byte, error) { return []byte("wrong-" + secret), nil })
			return err
		}},
		"private key for a signer": {keyPEM, []string{keyLine[20:44]}, func(b []byte) error {
			_, err := jwt.ParseSigner(b)
			return err
		}},
		"seal key": {sealPEM, []string{sealLine[20:44]}, func(b []byte) error {
			_, err := keyfile.Parse(b, nil)
			return err
		}},
		"private key for a seal key's public half": {sealPEM, []string{sealLine[20:44]}, func(b []byte) error {
			_, err := seal.ParsePublicKey(string(b))
			return err
		}},
		"private key for certificates": {keyPEM, []string{keyLine[20:44]}, func(b []byte) error {
			_, err := ca.ParseCertificates(b)
			return err
		}},
		"server.conf": {[]byte("identity = web1\nsecret_setting = " + secret + "\n"), []string{secret},
			func(b []byte) error { _, err := conffile.ParseSettings(b); return err }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := 0
			places := 97
			if name == "encrypted private key" {
				places = 1 // damaged rounds may take very long
			}
			for how, b := range damaged(tt.good, places) {
				err := tt.decode(b)
				if err == nil {
					continue
				}
				said++
				for _, s := range tt.secrets {
					if strings.Contains(err.Error(), s) {
						t.Errorf("%s: error = %v", how, err)
					}
				}
			}
			if said < 10 {
				t.Errorf("%d errors, want the damage to be noticed", said)
			}
		})
	}
}

// unknownSigner trusts a signer whose key does not exist.
func unknownSigner() (*jwt.Verifier, error) {
	pub, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	b, err := jwt.MarshalPublicKey(pub)
	if err != nil {
		return nil, err
	}
	s, err := jwt.ParseSigner(b)
	if err != nil {
		return nil, err
	}
	return jwt.NewVerifier(jwt.VerifierConfig{Signers: []jwt.Signer{s}})
}

// damaged returns damaged variants of good by kind, some at several places.
func damaged(good []byte, places int) map[string][]byte {
	all := map[string][]byte{
		"twice": append(bytes.Clone(good), good...), "quoted": fmt.Appendf(nil, "%q", good),
		"behind junk":          append([]byte("junk = "), good...),
		"in lines":             bytes.ReplaceAll(good, []byte("-"), []byte("\n")),
		"without equals signs": bytes.ReplaceAll(good, []byte("="), nil),
		"unquoted":             bytes.ReplaceAll(good, []byte(`"`), nil),
		"as a key":             bytes.ReplaceAll(good, []byte(`:"`), []byte(`","`)),
		"as numbers":           bytes.ReplaceAll(good, []byte(`"`), []byte(`1`)),
		"in a list":            bytes.ReplaceAll(good, []byte(`:`), []byte(`:[`)),
	}
	for i := 0; i < len(good); i += 1 + len(good)/places {
		all[fmt.Sprintf("cut at %d", i)] = good[:i]
		all[fmt.Sprintf("from %d on", i)] = good[i:]
		for _, c := range []byte{0, '"', '{', '\n', 'A', 0xff} {
			flipped := bytes.Clone(good)
			flipped[i] = c
			all[fmt.Sprintf("%q at %d", c, i)] = flipped
		}
	}
	return all
}

// Files with an unusable secret are read.
func TestErrorsOfSecretFilesNameTheFileAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, []byte("hunter2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := new(keyfile.Ring).Signer(path); err == nil || strings.Contains(err.Error(), "hunter2") ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("Signer = %v, want the path and no content", err)
	}
}
