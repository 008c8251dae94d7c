package jwt_test

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"

	"muster/jwt"
)

func hexText(b []byte) string { return hex.EncodeToString(b) }

// flip changes the first possible character.
func flip(s string) string {
	if s[0] == 'A' {
		return "B" + s[1:]
	}
	return "A" + s[1:]
}

var errAsk = errors.New("no answer")

func TestParsePrivateKeyOfEveryForm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(args ...string) { t.Helper(); openssl(t, dir, nil, args...) }
	run("genrsa", "-out", "rsa8.pem", "2048")
	run("rsa", "-in", "rsa8.pem", "-traditional", "-out", "rsa1.pem")
	run("pkcs8", "-topk8", "-in", "rsa8.pem", "-out", "default.pem", "-passout", "pass:hunter2")
	run("pkcs8", "-topk8", "-in", "rsa8.pem", "-out", "scrypt.pem", "-passout", "pass:hunter2", "-scrypt")
	run("pkcs8", "-topk8", "-in", "rsa8.pem", "-out", "sha1.pem", "-passout", "pass:hunter2", "-v2prf", "hmacWithSHA1",
		"-v2", "aes128")
	run("pkcs8", "-topk8", "-in", "rsa8.pem", "-out", "sha512.pem", "-passout", "pass:hunter2", "-v2prf",
		"hmacWithSHA512")
	run("rsa", "-in", "rsa8.pem", "-traditional", "-out", "legacy.pem", "-aes128", "-passout", "pass:hunter2")
	run("ecparam", "-name", "prime256v1", "-genkey", "-out", "sec1.pem") // with EC PARAMETERS in front
	run("pkcs8", "-topk8", "-nocrypt", "-in", "sec1.pem", "-out", "ec8.pem")
	run("pkcs8", "-topk8", "-in", "sec1.pem", "-out", "ecenc.pem", "-passout", "pass:hunter2")
	run("genpkey", "-algorithm", "ed25519", "-out", "ed8.pem")
	run("pkcs8", "-topk8", "-in", "ed8.pem", "-out", "edenc.pem", "-passout", "pass:hunter2")
	run("req", "-x509", "-new", "-key", "rsa8.pem", "-out", "cert.pem", "-subj", "/CN=prov")
	run("genrsa", "-out", "weak.pem", "1024")
	run("ecparam", "-name", "secp384r1", "-genkey", "-out", "p384.pem")
	run("ecparam", "-name", "secp521r1", "-genkey", "-out", "p521.pem")
	run("genpkey", "-algorithm", "x25519", "-out", "x25519.pem")
	file := func(name string) []byte { return readFile(t, dir, name) }
	seed := []byte(hexText(edKey("signer").Seed()))
	tests := map[string]struct {
		file       []byte
		passphrase string // "": asking is an error
		want       error
	}{
		"PKCS #1":                       {file("rsa1.pem"), "", nil},
		"PKCS #8, RSA":                  {file("rsa8.pem"), "", nil},
		"PKCS #8, P-256":                {file("ec8.pem"), "", nil},
		"PKCS #8, Ed25519":              {file("ed8.pem"), "", nil},
		"SEC 1 after its parameters":    {file("sec1.pem"), "", nil},
		"encrypted, openssl's default":  {file("default.pem"), "hunter2", nil},
		"encrypted, P-256":              {file("ecenc.pem"), "hunter2", nil},
		"encrypted, Ed25519":            {file("edenc.pem"), "hunter2", nil},
		"encrypted, scrypt":             {file("scrypt.pem"), "hunter2", nil},
		"encrypted, SHA-1 and AES-128":  {file("sha1.pem"), "hunter2", nil},
		"Choria's seed":                 {seed, "", nil},
		"Choria's seed with a line end": {append(bytes.Clone(seed), '\n'), "", nil},
		"Choria's seed in upper case":   {bytes.ToUpper(seed), "", nil},
		"with its certificate":          {append(file("cert.pem"), file("rsa8.pem")...), "", nil},
		"wrong passphrase":              {file("default.pem"), "hunter3", jwt.ErrPassphrase},
		"no passphrase":                 {file("default.pem"), "", errAsk},
		"encrypted in a way not read":   {file("sha512.pem"), "hunter2", jwt.ErrKey},
		"encrypted in the legacy way":   {file("legacy.pem"), "hunter2", jwt.ErrKey},
		"ciphertext cut short":          {ragged(t, file("default.pem")), "hunter2", jwt.ErrKey},
		"a certificate":                 {file("cert.pem"), "", jwt.ErrKey},
		"two keys":                      {append(file("rsa8.pem"), file("ed8.pem")...), "", jwt.ErrKey},
		"lines of Windows":              {bytes.ReplaceAll(file("ed8.pem"), []byte("\n"), []byte("\r\n")), "", nil},
		"blanks at the ends of lines":   {bytes.ReplaceAll(file("ed8.pem"), []byte("\n"), []byte(" \t\n")), "", nil},
		"a comment in front":            {append([]byte("# of the build\n"), file("ed8.pem")...), "", nil},
		"a byte order mark in front":    {append([]byte("\ufeff"), file("ed8.pem")...), "", jwt.ErrKey},
		"two keys, the first one marked": {slices.Concat([]byte("\ufeff"), file("ed8.pem"), file("rsa8.pem")), "",
			jwt.ErrKey},
		"two keys, the second one cut":   {append(file("ed8.pem"), file("rsa8.pem")[:200]...), "", jwt.ErrKey},
		"RSA of 1024 bits":               {file("weak.pem"), "", jwt.ErrKey},
		"P-384":                          {file("p384.pem"), "", nil},
		"P-521":                          {file("p521.pem"), "", jwt.ErrKey},
		"a key that cannot sign":         {file("x25519.pem"), "", jwt.ErrKey},
		"a seed and something else":      {append(bytes.Clone(seed), " x"...), "", jwt.ErrKey},
		"63 digits":                      {seed[:63], "", jwt.ErrKey},
		"64 characters that are not hex": {bytes.Repeat([]byte("x"), 64), "", jwt.ErrKey},
		"empty":                          {nil, "", jwt.ErrKey},
		"PEM of nothing":                 {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY"}), "", jwt.ErrKey},
		"encrypted nothing": {pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY"}), "hunter2",
			jwt.ErrKey},
		"OpenSSH": {pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY"}), "", jwt.ErrKey},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			key, err := jwt.ParsePrivateKey(tt.file, func() ([]byte, error) {
				if asked++; tt.passphrase == "" {
					return nil, errAsk
				}
				return []byte(tt.passphrase), nil
			})
			if !errors.Is(err, tt.want) {
				t.Fatalf("ParsePrivateKey error = %v, want %v", err, tt.want)
			}
			if (key == nil) != (err != nil) {
				t.Fatalf("ParsePrivateKey = %T beside error %v", key, err)
			}
			if asked > 1 {
				t.Errorf("asked for the passphrase %d times", asked)
			}
			if err != nil {
				if strings.Contains(err.Error(), "hunter") {
					t.Errorf("error %q has the passphrase", err)
				}
				return
			}
			c := goodClaims()
			if _, err := verifier(t, jwt.Signer{Key: key.Public()}).Verify(sign(t, key, c)); err != nil {
				t.Errorf("a token signed with it: %v", err)
			}
		})
	}
}

// ragged removes the last byte of an encrypted key's ciphertext.
func ragged(tb testing.TB, b []byte) []byte {
	tb.Helper()
	block, _ := pem.Decode(b)
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}
	if _, err := asn1.Unmarshal(block.Bytes, &info); err != nil {
		tb.Fatal(err)
	}
	info.Data = info.Data[:len(info.Data)-1]
	var err error
	if block.Bytes, err = asn1.Marshal(info); err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}

func TestParseSignerRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openssl(t, dir, nil, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem",
		"-subj", "/CN=prov")
	openssl(t, dir, nil, "req", "-x509", "-newkey", "rsa:1024", "-nodes", "-keyout", "weak.pem", "-out",
		"weak-cert.pem", "-subj", "/CN=prov")
	cert, key := readFile(t, dir, "cert.pem"), readFile(t, dir, "key.pem")
	pkix := func(pub any) []byte {
		der, err := x509.MarshalPKIXPublicKey(pub)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	}
	cut, _ := pem.Decode(cert)
	damaged := bytes.Replace(cert, []byte("\nM"), []byte("\n!M"), 1)
	tests := map[string][]byte{
		"after a damaged certificate": append(bytes.Clone(damaged), pkix(edKey("a").Public())...),
		"before a damaged one":        append(pkix(edKey("a").Public()), damaged...),
		"after a byte order mark":     append([]byte("\ufeff"), pkix(edKey("a").Public())...),
		"the second, the first marked": slices.Concat([]byte("\ufeff"), pkix(edKey("a").Public()),
			pkix(edKey("b").Public())),
		"private key":                 key,
		"certificate and private key": append(bytes.Clone(cert), key...),
		"two certificates":            append(bytes.Clone(cert), cert...),
		"RSA of 1024 bits":            readFile(t, dir, "weak-cert.pem"),
		"P-521":                       pkix(mustEC(elliptic.P521()).Public()),
		"truncated":                   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cut.Bytes[:100]}),
		"another block":               pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: cut.Bytes}),
		"two lines of hex":            []byte(hexText(edKey("a").Seed()) + "\n" + hexText(edKey("b").Seed())),
		"a token":                     []byte("e30.e30.e30"),
		"empty":                       nil,
	}
	for name, b := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := jwt.ParseSigner(b)
			if !errors.Is(err, jwt.ErrKey) || s.Key != nil {
				t.Errorf("ParseSigner = %+v, %v, want %v", s, err, jwt.ErrKey)
			}
		})
	}
}
