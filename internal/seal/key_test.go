package seal_test

import (
	"crypto/hpke"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

// TestSecretsAreNotPrinted prints everything with a secret in every careless way and looks for key bytes.
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
	recipient, err := hpke.NewRecipient(s.Encapsulated, private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(),
		[]byte("muster enroll v1"))
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
			fmt.Sprintf("%v", some), fmt.Sprintf("%x", some), fmt.Sprintf("%#v", some), fmt.Sprintf("%q",
				some), string(some),
			base64.StdEncoding.EncodeToString(some), base64.RawURLEncoding.EncodeToString(some),
		} {
			if strings.Contains(out.String(), strings.Trim(form, "[]\"")) {
				t.Errorf("printed %s as %s", name, form)
			}
		}
	}
}
