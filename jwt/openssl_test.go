package jwt_test

import (
	"bytes"
	"encoding/asn1"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/jwt"
)

// openssl runs the program in dir and returns its output. Without openssl the tests below fail.
func openssl(tb testing.TB, dir string, stdin []byte, args ...string) []byte {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "openssl", args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("openssl %q: %v\n%s", args, err, stderr.Bytes())
	}
	return out
}

func readFile(tb testing.TB, elem ...string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Claims of other tools: Choria's of 2019, from the post that introduced them, and today's with an extension.
const (
	claims2019 = `{"chs":false,"cht":"toomanysecrets","chu":"prov1.example.net:4222,prov2.example.net:4222","chpd":true,` +
		`"chrd":"/etc/facts.json","chf":"/etc/facts.json",` +
		`"iat":1577723210,"iss":"choria cli","nbf":1577723210,"sub":"choria_provisioning"}`
	claimsToday = `{"purpose":"choria_provisioning","cht":"toomanysecrets","chs":true,"chsrv":"provision.example.net","chpd":true,` +
		`"chusr":"provisioner","chpwd":"s3cret","extensions":{"rack":"b4"},"ou":"acme","v2":true,"update":true,` +
		`"iss":"Choria Tokens Package","sub":"choria_provisioning","exp":1795224858,"nbf":1763688858,"iat":1763688858,` +
		`"jti":"35mF2Rz0Yd8Kc4mR7qJvXoTnWbE"}`
)

// Tokens and keys made by openssl alone.
func TestTokensMadeByOpenSSL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(stdin []byte, args ...string) []byte { t.Helper(); return openssl(t, dir, stdin, args...) }
	run(nil, "req", "-x509", "-newkey", "rsa:2048", "-keyout", "rsa.pem", "-out", "rsa-cert.pem", "-days", "1825",
		"-subj", "/CN=prov", "-nodes")
	run(nil, "rsa", "-in", "rsa.pem", "-pubout", "-out", "rsa-pub.pem")
	run(nil, "rsa", "-in", "rsa.pem", "-RSAPublicKey_out", "-out", "rsa-pkcs1.pem")
	run(nil, "ecparam", "-name", "prime256v1", "-genkey", "-out", "ec.pem")
	run(nil, "ec", "-in", "ec.pem", "-pubout", "-out", "ec-pub.pem")
	run(nil, "req", "-x509", "-new", "-key", "ec.pem", "-out", "ec-cert.pem", "-days", "30", "-subj", "/CN=prov")
	run(nil, "genpkey", "-algorithm", "ed25519", "-out", "ed.pem")
	run(nil, "pkey", "-in", "ed.pem", "-pubout", "-out", "ed-pub.pem")

	rsaSign := func(hash string) func([]byte) []byte {
		return func(in []byte) []byte { return run(in, "dgst", "-"+hash, "-sign", "rsa.pem") }
	}
	ecSign := func(in []byte) []byte {
		var sig struct{ R, S *big.Int }
		if _, err := asn1.Unmarshal(run(in, "dgst", "-sha256", "-sign", "ec.pem"), &sig); err != nil {
			t.Fatal(err)
		}
		return append(sig.R.FillBytes(make([]byte, 32)), sig.S.FillBytes(make([]byte, 32))...)
	}
	edSign := func(in []byte) []byte {
		if err := os.WriteFile(filepath.Join(dir, "input"), in, 0o600); err != nil {
			t.Fatal(err)
		}
		return run(nil, "pkeyutl", "-sign", "-rawin", "-inkey", "ed.pem", "-in", "input")
	}
	hexOf := func(pub string) string { // as Choria writes Ed25519 keys
		der := run(nil, "pkey", "-pubin", "-in", pub, "-outform", "DER")
		return strings.ToLower(hexText(der[len(der)-32:]))
	}
	if err := os.WriteFile(filepath.Join(dir, "ed-pub.hex"), []byte(hexOf("ed-pub.pem")), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		alg  string
		key  string // file with the public key
		sign func([]byte) []byte
	}{
		{"RS256", "rsa-cert.pem", rsaSign("sha256")},
		{"RS256", "rsa-pub.pem", rsaSign("sha256")},
		{"RS384", "rsa-pkcs1.pem", rsaSign("sha384")},
		{"RS512", "rsa-cert.pem", rsaSign("sha512")},
		{"ES256", "ec-cert.pem", ecSign},
		{"ES256", "ec-pub.pem", ecSign},
		{"EdDSA", "ed-pub.pem", edSign},
		{"EdDSA", "ed-pub.hex", edSign},
	} {
		signer, err := jwt.ParseSigner(readFile(t, dir, tt.key))
		if err != nil {
			t.Fatalf("ParseSigner(%s): %v", tt.key, err)
		}
		// The certificate was made now, not at noon.
		now := time.Now()
		v, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: []jwt.Signer{signer}, Now: func() time.Time {
			return now
		}})
		if err != nil {
			t.Fatal(err)
		}
		claims := map[string]string{
			"2019":  claims2019,
			"today": strings.Replace(claimsToday, "1795224858", unix(now.Add(time.Hour)), 1),
		}
		for name, body := range claims {
			text := craft(`{"alg":"`+tt.alg+`","typ":"JWT"}`, body, func(input string) []byte {
				return tt.sign([]byte(input))
			})
			got, err := v.Verify(text)
			if err != nil {
				t.Errorf("%s by %s, claims of %s: %v", tt.alg, tt.key, name, err)
				continue
			}
			if string(got.Token) != "toomanysecrets" || !got.Default || got.ID == "" {
				t.Errorf("%s by %s, claims of %s: %+v", tt.alg, tt.key, name, got)
			}
			if name == "2019" && (len(got.URLs()) != 2 || got.Organization != "choria" || got.Issuer != "choria cli" ||
				got.Secure) {
				t.Errorf("claims of 2019: %+v", got)
			}
			if name == "today" && (got.SRVDomain != "provision.example.net" || got.Organization != "acme" ||
				!got.ProtocolV2 ||
				!got.AllowUpdate || got.Username != "provisioner" || string(got.Password) != "s3cret" ||
				got.JTI == "" ||
				string(got.Extensions["rack"]) != `"b4"` || !got.Secure) {
				t.Errorf("claims of today: %+v", got)
			}
			bent := text[:len(text)-10] + flip(text[len(text)-10:])
			if _, err := v.Verify(bent); !errors.Is(err, jwt.ErrSignature) {
				t.Errorf("%s by %s with a bent signature: error %v, want %v", tt.alg, tt.key, err, jwt.ErrSignature)
			}
		}
	}
}
