package seal_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hpke"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"testing"

	"muster/internal/seal"
)

func TestParsePublicKey(t *testing.T) {
	t.Parallel()
	good := testKey(t, "a").Public().String()
	point := func(h string) string {
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	tests := map[string]struct {
		s    string
		want error
	}{
		"a key":          {good, nil},
		"the base point": {point("09" + strings.Repeat("00", 31)), nil},

		"empty":                 {"", seal.ErrKey},
		"padded":                {good + "=", seal.ErrKey},
		"a byte short":          {good[:42], seal.ErrKey},
		"a byte long":           {good + "AA", seal.ErrKey},
		"with a line end":       {good + "\n", seal.ErrKey},
		"a line end inside":     {good[:20] + "\n" + good[20:], seal.ErrKey},
		"a blank before":        {" " + good, seal.ErrKey},
		"base64 of the old way": {strings.Repeat("/", 42) + "8", seal.ErrKey},
		"stray bits":            {point("09" + strings.Repeat("00", 31))[:42] + "B", seal.ErrKey},
		"hex":                   {hex.EncodeToString(make([]byte, 32)), seal.ErrKey},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, err := seal.ParsePublicKey(tt.s)
			if !errors.Is(err, tt.want) {
				t.Fatalf("ParsePublicKey(%q) error = %v, want %v", tt.s, err, tt.want)
			}
			if tt.want != nil && k != (seal.PublicKey{}) {
				t.Errorf("ParsePublicKey(%q) = %v beside an error", tt.s, k)
			}
			if tt.want == nil && k.String() != tt.s {
				t.Errorf("ParsePublicKey(%q) = %v", tt.s, k)
			}
		})
	}
}

func pemOf(t *testing.T, typ string, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der})
}

func TestParsePrivateKey(t *testing.T) {
	t.Parallel()
	good := pemOf(t, "PRIVATE KEY", ecdhKey(t, "a"))
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		text []byte
		want error
	}{
		"a key":                  {good, nil},
		"a comment before":       {append([]byte("# seal key of ams-1\n"), good...), nil},
		"blanks after":           {append(bytes.Clone(good), " \n\n"...), nil},
		"empty":                  {nil, seal.ErrKey},
		"no PEM":                 {[]byte(testKey(t, "a").Public().String()), seal.ErrKey},
		"two keys":               {append(bytes.Clone(good), good...), seal.ErrKey},
		"something after":        {append(bytes.Clone(good), "x"...), seal.ErrKey},
		"another block":          {pemOf(t, "PUBLIC KEY", ecdhKey(t, "a")), seal.ErrKey},
		"encrypted":              {pemOf(t, "ENCRYPTED PRIVATE KEY", ecdhKey(t, "a")), seal.ErrKey},
		"another kind of key":    {pemOf(t, "PRIVATE KEY", p256), seal.ErrKey},
		"not PKCS #8 in the PEM": {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), seal.ErrKey},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, err := seal.ParsePrivateKey(tt.text)
			if !errors.Is(err, tt.want) || (k == nil) != (err != nil) {
				t.Fatalf("ParsePrivateKey = %v, %v; want error %v", k, err, tt.want)
			}
			if err != nil {
				return
			}
			if k.Public() != testKey(t, "a").Public() {
				t.Errorf("public half = %v", k.Public())
			}
			again, err := k.MarshalPEM()
			if err != nil || !bytes.Equal(again, good) {
				t.Errorf("MarshalPEM = %d bytes, %v; want the %d that it was read from", len(again), err, len(good))
			}
		})
	}
	t.Run("several", func(t *testing.T) {
		t.Parallel()
		keys, err := seal.ParsePrivateKeys(good, pemOf(t, "PRIVATE KEY", ecdhKey(t, "b")))
		if err != nil || len(keys) != 2 || keys[0].Public() != testKey(t, "a").Public() || keys[1].Public() != testKey(t, "b").Public() {
			t.Errorf("ParsePrivateKeys = %v, %v", keys, err)
		}
		keys, err = seal.ParsePrivateKeys([]byte("x"), good, []byte("y"))
		if !errors.Is(err, seal.ErrKey) || keys != nil || !strings.Contains(err.Error(), "1 of 3") || !strings.Contains(err.Error(), "3 of 3") {
			t.Errorf("ParsePrivateKeys with a bad first and third = %v, %v", keys, err)
		}
	})
}

// TestKeysOfOpenSSL reads a key that openssl made, and has openssl find the
// public half of one of ours.
func TestKeysOfOpenSSL(t *testing.T) {
	t.Parallel()
	openssl := func(in []byte, args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), "openssl", args...)
		cmd.Stdin = bytes.NewReader(in)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("openssl %v: %v", args, err)
		}
		return out
	}
	ours, err := seal.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := ours.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := seal.ParsePrivateKey(openssl(nil, "genpkey", "-algorithm", "X25519"))
	if err != nil {
		t.Fatal(err)
	}
	theirText, err := theirs.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		key  *seal.PrivateKey
		text []byte
	}{{ours, text}, {theirs, theirText}} {
		der := openssl(tt.text, "pkey", "-pubout", "-outform", "DER")
		want := base64.RawURLEncoding.EncodeToString(der[len(der)-32:]) // RFC 8410 section 4
		if got := tt.key.Public().String(); got != want {
			t.Errorf("public half = %q, openssl says %q", got, want)
		}
	}
}

func TestNewOpener(t *testing.T) {
	t.Parallel()
	a, b := testKey(t, "a"), testKey(t, "b")
	tests := map[string]struct {
		keys []*seal.PrivateKey
		want error
	}{
		"one":            {[]*seal.PrivateKey{a}, nil},
		"two":            {[]*seal.PrivateKey{a, b}, nil},
		"none":           {nil, seal.ErrKey},
		"nil":            {[]*seal.PrivateKey{a, nil}, seal.ErrKey},
		"the zero value": {[]*seal.PrivateKey{{}}, seal.ErrKey},
		"the same twice": {[]*seal.PrivateKey{a, b, testKey(t, "a")}, seal.ErrKey},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if o, err := seal.NewOpener(tt.keys...); !errors.Is(err, tt.want) || (o == nil) != (err != nil) {
				t.Errorf("NewOpener = %v, %v; want %v", o, err, tt.want)
			}
		})
	}
}

// TestSecretsAreNotPrinted prints everything that holds a secret, in every way
// that a careless line of code might, and looks for the bytes of the key.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	k := testKey(t, "a")
	o := testOpener(t, "a")
	s, opener := mustSeal(t, "a", seal.PurposeEnroll, "question")
	_, sealer, err := o.Open(seal.PurposeEnroll, s)
	if err != nil {
		t.Fatal(err)
	}
	private, err := hpke.NewDHKEMPrivateKey(ecdhKey(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	recipient, err := hpke.NewRecipient(s.Encapsulated, private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), []byte("muster enroll v1"))
	if err != nil {
		t.Fatal(err)
	}
	exported, err := recipient.Export("muster reply v1", 32)
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string][]byte{"the private key": ecdhKey(t, "a").Bytes(), "the reply key": exported}
	var out strings.Builder
	for _, v := range []any{k, *k, o, *o, sealer, *sealer, opener, *opener, struct{ k *seal.PrivateKey }{k}} {
		for _, format := range []string{"%v ", "%+v ", "%#v ", "%s ", "%q ", "%x ", "%d "} {
			fmt.Fprintf(&out, format, v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("printed", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("printed", "v", v)
		if b, err := json.Marshal(v); err == nil {
			out.Write(b)
		}
	}
	for name, secret := range secrets {
		some := secret[:6]
		for _, form := range []string{
			fmt.Sprintf("%v", some), fmt.Sprintf("%x", some), fmt.Sprintf("%#v", some), fmt.Sprintf("%q", some), string(some),
			base64.StdEncoding.EncodeToString(some), base64.RawURLEncoding.EncodeToString(some),
		} {
			if strings.Contains(out.String(), strings.Trim(form, "[]\"")) {
				t.Errorf("printed %s as %s", name, form)
			}
		}
	}
}
