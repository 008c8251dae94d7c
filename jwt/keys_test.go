package jwt_test

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/jwt"
)

func hexText(b []byte) string { return hex.EncodeToString(b) }

// flip changes the first character that it may.
func flip(s string) string {
	if s[0] == 'A' {
		return "B" + s[1:]
	}
	return "A" + s[1:]
}

var errAsk = errors.New("nobody answered")

func TestParsePrivateKeyOfEveryForm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(args ...string) { t.Helper(); openssl(t, dir, nil, args...) }
	run("genrsa", "-out", "rsa8.pem", "2048")
	run("rsa", "-in", "rsa8.pem", "-traditional", "-out", "rsa1.pem")
	run("pkcs8", "-topk8", "-in", "rsa8.pem", "-out", "default.pem", "-passout", "pass:hunter2")
	run("pkcs8", "-topk8", "-in", "rsa8.pem", "-out", "scrypt.pem", "-passout", "pass:hunter2", "-scrypt")
	run("pkcs8", "-topk8", "-in", "rsa8.pem", "-out", "sha1.pem", "-passout", "pass:hunter2", "-v2prf", "hmacWithSHA1", "-v2", "aes128")
	run("pkcs8", "-topk8", "-in", "rsa8.pem", "-out", "sha512.pem", "-passout", "pass:hunter2", "-v2prf", "hmacWithSHA512")
	run("rsa", "-in", "rsa8.pem", "-traditional", "-out", "legacy.pem", "-aes128", "-passout", "pass:hunter2")
	run("ecparam", "-name", "prime256v1", "-genkey", "-out", "sec1.pem") // with EC PARAMETERS in front
	run("pkcs8", "-topk8", "-nocrypt", "-in", "sec1.pem", "-out", "ec8.pem")
	run("pkcs8", "-topk8", "-in", "sec1.pem", "-out", "ecenc.pem", "-passout", "pass:hunter2")
	run("genpkey", "-algorithm", "ed25519", "-out", "ed8.pem")
	run("pkcs8", "-topk8", "-in", "ed8.pem", "-out", "edenc.pem", "-passout", "pass:hunter2")
	run("req", "-x509", "-new", "-key", "rsa8.pem", "-out", "cert.pem", "-subj", "/CN=prov")
	run("genrsa", "-out", "weak.pem", "1024")
	run("ecparam", "-name", "secp384r1", "-genkey", "-out", "p384.pem")
	run("genpkey", "-algorithm", "x25519", "-out", "x25519.pem")
	file := func(name string) []byte { return readFile(t, dir, name) }
	seed := []byte(hexText(edKey("signer").Seed()))
	tests := map[string]struct {
		file       []byte
		passphrase string // "" means that asking is an error
		want       error
	}{
		"PKCS #1":                        {file("rsa1.pem"), "", nil},
		"PKCS #8, RSA":                   {file("rsa8.pem"), "", nil},
		"PKCS #8, P-256":                 {file("ec8.pem"), "", nil},
		"PKCS #8, Ed25519":               {file("ed8.pem"), "", nil},
		"SEC 1 after its parameters":     {file("sec1.pem"), "", nil},
		"encrypted, openssl's default":   {file("default.pem"), "hunter2", nil},
		"encrypted, P-256":               {file("ecenc.pem"), "hunter2", nil},
		"encrypted, Ed25519":             {file("edenc.pem"), "hunter2", nil},
		"encrypted, scrypt":              {file("scrypt.pem"), "hunter2", nil},
		"encrypted, SHA-1 and AES-128":   {file("sha1.pem"), "hunter2", nil},
		"Choria's seed":                  {seed, "", nil},
		"Choria's seed with a line end":  {append(bytes.Clone(seed), '\n'), "", nil},
		"Choria's seed in upper case":    {bytes.ToUpper(seed), "", nil},
		"with its certificate":           {append(file("cert.pem"), file("rsa8.pem")...), "", nil},
		"wrong passphrase":               {file("default.pem"), "hunter3", jwt.ErrPassphrase},
		"no passphrase":                  {file("default.pem"), "", errAsk},
		"encrypted in a way not read":    {file("sha512.pem"), "hunter2", jwt.ErrKey},
		"encrypted in the legacy way":    {file("legacy.pem"), "hunter2", jwt.ErrKey},
		"ciphertext cut short":           {ragged(t, file("default.pem")), "hunter2", jwt.ErrKey},
		"a certificate":                  {file("cert.pem"), "", jwt.ErrKey},
		"two keys":                       {append(file("rsa8.pem"), file("ed8.pem")...), "", jwt.ErrKey},
		"lines of Windows":               {bytes.ReplaceAll(file("ed8.pem"), []byte("\n"), []byte("\r\n")), "", nil},
		"blanks at the ends of lines":    {bytes.ReplaceAll(file("ed8.pem"), []byte("\n"), []byte(" \t\n")), "", nil},
		"a comment in front":             {append([]byte("# of the build\n"), file("ed8.pem")...), "", nil},
		"a byte order mark in front":     {append([]byte("\ufeff"), file("ed8.pem")...), "", jwt.ErrKey},
		"two keys, the first one marked": {slices.Concat([]byte("\ufeff"), file("ed8.pem"), file("rsa8.pem")), "", jwt.ErrKey},
		"two keys, the second one cut":   {append(file("ed8.pem"), file("rsa8.pem")[:200]...), "", jwt.ErrKey},
		"RSA of 1024 bits":               {file("weak.pem"), "", jwt.ErrKey},
		"P-384":                          {file("p384.pem"), "", jwt.ErrKey},
		"a key that cannot sign":         {file("x25519.pem"), "", jwt.ErrKey},
		"a seed and something else":      {append(bytes.Clone(seed), " x"...), "", jwt.ErrKey},
		"63 digits":                      {seed[:63], "", jwt.ErrKey},
		"64 characters that are not hex": {bytes.Repeat([]byte("x"), 64), "", jwt.ErrKey},
		"empty":                          {nil, "", jwt.ErrKey},
		"PEM of nothing":                 {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY"}), "", jwt.ErrKey},
		"encrypted nothing":              {pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY"}), "hunter2", jwt.ErrKey},
		"OpenSSH":                        {pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY"}), "", jwt.ErrKey},
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

// ragged takes the last byte off the ciphertext of an encrypted key.
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

func TestPassphraseIsOverwritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openssl(t, dir, nil, "genpkey", "-algorithm", "ed25519", "-aes256", "-pass", "pass:hunter2", "-out", "key.pem")
	b := readFile(t, dir, "key.pem")
	secret := []byte("hunter2")
	if _, err := jwt.ParsePrivateKey(b, func() ([]byte, error) { return secret, nil }); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(secret, make([]byte, len(secret))) {
		t.Errorf("passphrase left in memory: %q", secret)
	}
	if _, err := jwt.ParsePrivateKey(b, nil); !errors.Is(err, jwt.ErrPassphrase) {
		t.Errorf("without a way to ask: error %v, want %v", err, jwt.ErrPassphrase)
	}
	if _, err := jwt.ParsePrivateKey(b, func() ([]byte, error) { return nil, nil }); !errors.Is(err, jwt.ErrPassphrase) {
		t.Errorf("empty passphrase: error %v, want %v", err, jwt.ErrPassphrase)
	}
}

func TestKeysOfOursAreReadByOpenSSL(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		key        crypto.Signer
		passphrase string
	}{
		"Ed25519":            {edKey("signer"), ""},
		"RSA":                {rsaKey(), ""},
		"P-256":              {ecKey(), ""},
		"Ed25519, encrypted": {edKey("signer"), "hunter2"}, // once: 600,000 rounds take a while
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			b, err := jwt.MarshalPrivateKey(tt.key, []byte(tt.passphrase))
			if err != nil {
				t.Fatal(err)
			}
			if encrypted := bytes.Contains(b, []byte("BEGIN ENCRYPTED PRIVATE KEY")); encrypted != (tt.passphrase != "") {
				t.Errorf("encrypted = %t", encrypted)
			}
			if err := os.WriteFile(filepath.Join(dir, "key.pem"), b, 0o600); err != nil {
				t.Fatal(err)
			}
			want, err := jwt.MarshalPublicKey(tt.key.Public())
			if err != nil {
				t.Fatal(err)
			}
			if got := openssl(t, dir, nil, "pkey", "-in", "key.pem", "-passin", "pass:"+tt.passphrase, "-pubout"); !bytes.Equal(got, want) {
				t.Errorf("openssl reads\n%s, want\n%s", got, want)
			}
			signer, err := jwt.ParseSigner(want)
			if err != nil || !tt.key.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(signer.Key) {
				t.Errorf("ParseSigner = %+v, %v", signer, err)
			}
			again, err := jwt.ParsePrivateKey(b, func() ([]byte, error) { return []byte(tt.passphrase), nil })
			if err != nil || !tt.key.(interface{ Equal(crypto.PrivateKey) bool }).Equal(again) {
				t.Errorf("ParsePrivateKey = %T, %v", again, err)
			}
		})
	}
}

func TestParseSignerRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openssl(t, dir, nil, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=prov")
	openssl(t, dir, nil, "req", "-x509", "-newkey", "rsa:1024", "-nodes", "-keyout", "weak.pem", "-out", "weak-cert.pem", "-subj", "/CN=prov")
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
		"after a damaged certificate":  append(bytes.Clone(damaged), pkix(edKey("a").Public())...),
		"before a damaged one":         append(pkix(edKey("a").Public()), damaged...),
		"after a byte order mark":      append([]byte("\ufeff"), pkix(edKey("a").Public())...),
		"the second, the first marked": slices.Concat([]byte("\ufeff"), pkix(edKey("a").Public()), pkix(edKey("b").Public())),
		"private key":                  key,
		"certificate and private key":  append(bytes.Clone(cert), key...),
		"two certificates":             append(bytes.Clone(cert), cert...),
		"RSA of 1024 bits":             readFile(t, dir, "weak-cert.pem"),
		"P-384":                        pkix(mustEC(elliptic.P384()).Public()),
		"truncated":                    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cut.Bytes[:100]}),
		"another block":                pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: cut.Bytes}),
		"all zeros":                    []byte(strings.Repeat("0", 64)),
		"the neutral point":            []byte("01" + strings.Repeat("0", 62)),
		"a point of order 2":           []byte("ec" + strings.Repeat("f", 60) + "7f"),
		"a point of order 8":           []byte("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
		"small order in PEM":           pkix(ed25519.PublicKey(make([]byte, 32))),
		"two lines of hex":             []byte(hexText(edKey("a").Seed()) + "\n" + hexText(edKey("b").Seed())),
		"a token":                      []byte("e30.e30.e30"),
		"empty":                        nil,
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

// TestACertificateOfAnotherKindOfKey has a key in it, and no error says that there is none.
func TestACertificateOfAnotherKindOfKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openssl(t, dir, nil, "genpkey", "-algorithm", "ed448", "-out", "key.pem")
	openssl(t, dir, nil, "req", "-x509", "-new", "-key", "key.pem", "-out", "cert.pem", "-subj", "/CN=prov")
	s, err := jwt.ParseSigner(readFile(t, dir, "cert.pem"))
	if s.Key != nil || !errors.Is(err, jwt.ErrKey) || !strings.Contains(err.Error(), "certificate of another kind of key, want RSA, P-256 or Ed25519") {
		t.Errorf("ParseSigner = %+v, %v", s, err)
	}
}

// TestNobodyElseCanSign shows that each key that is refused for its small order is one
// under which anybody can sign, whatever its sign bit, and that another is not.
func TestNobodyElseCanSign(t *testing.T) {
	t.Parallel()
	forged := make([]byte, ed25519.SignatureSize)
	forged[0] = 1 // the neutral point, then S = 0
	signs := func(key ed25519.PublicKey) bool {
		for i := range 256 { // (7/8)^256 are 1 in 10^15
			if ed25519.Verify(key, []byte{byte(i)}, forged) {
				return true
			}
		}
		return false
	}
	most := strings.Repeat("f", 60)
	for _, text := range []string{
		strings.Repeat("0", 64), "01" + strings.Repeat("0", 62), "ec" + most + "7f", "ed" + most + "7f", "ee" + most + "7f",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	} {
		key, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, sign := range []byte{0, 0x80} {
			key[31] |= sign
			if _, err := jwt.ParseSigner([]byte(hexText(key))); !errors.Is(err, jwt.ErrKey) || !signs(key) {
				t.Errorf("%x: %v; anybody signs with it: %v", key, err, signs(key))
			}
		}
	}
	good, _ := edKey("signer").Public().(ed25519.PublicKey)
	if _, err := jwt.ParseSigner([]byte(hexText(good))); err != nil || signs(good) {
		t.Errorf("%x: %v; anybody signs with it: %v", good, err, signs(good))
	}
}
