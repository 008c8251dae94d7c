package seal_test

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"muster/internal/seal"
	"muster/internal/wire"
)

// nkey has the form of a public user nkey.
var nkey = "U" + strings.Repeat("ABCDEFGHIJ7", 5)

func sealedToken(t testing.TB, name string, token wire.Secret) string {
	t.Helper()
	s, err := seal.SealToken(testKey(t, name).Public(), token, nkey)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTokenThereAndBack(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a", "b")
	for name, token := range map[string]wire.Secret{
		"a token": secretToken, "a character": "x", "the largest": wire.Secret(strings.Repeat("x", wire.MaxTokenBytes)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sealedToken(t, "b", token)
			if !seal.IsSealedToken(s) || len(s) != seal.SealedTokenBytes(len(token)) || len(s) > seal.MaxSealedTokenBytes {
				t.Errorf("sealed token of %d bytes, expected %d", len(s), seal.SealedTokenBytes(len(token)))
			}
			if strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
				t.Errorf("sealed token %q has other characters than a token", s)
			}
			got, gotNkey, err := o.OpenToken(s)
			if err != nil || got != token || gotNkey != nkey {
				t.Errorf("OpenToken = %d bytes, %q, %v", len(got), gotNkey, err)
			}
			if s == sealedToken(t, "b", token) {
				t.Error("the same token sealed twice is the same text")
			}
		})
	}
	if seal.SealedTokenBytes(wire.MaxTokenBytes) != seal.MaxSealedTokenBytes {
		t.Errorf("MaxSealedTokenBytes = %d, want %d", seal.MaxSealedTokenBytes, seal.SealedTokenBytes(wire.MaxTokenBytes))
	}
	// What the comment promises of a broker that muster did not configure.
	if room := 4096 - 370; seal.SealedTokenBytes(2500) > room || seal.SealedTokenBytes(2501) <= room {
		t.Errorf("tokens of 2,500 and 2,501 bytes become %d and %d", seal.SealedTokenBytes(2500), seal.SealedTokenBytes(2501))
	}
}

func TestSealedTokenHides(t *testing.T) {
	t.Parallel()
	s := sealedToken(t, "a", secretToken)
	for _, part := range append(strings.Split(s, "."), s) {
		raw, _ := base64.RawURLEncoding.DecodeString(part)
		for _, secret := range append(strings.Split(secretToken, "."), nkey) {
			if strings.Contains(part, secret) || strings.Contains(string(raw), secret) {
				t.Errorf("%q shows %q", part, secret)
			}
		}
	}
}

func TestIsSealedToken(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"": false, secretToken: false, "muster": false, "Muster-sealed-v1.a.b.c": false, " muster-sealed-v1.a.b.c": false,
		"muster-sealed-v1.a.b.c": true, "muster-sealed-v1": true, "muster-sealed-v2.x": true,
	} {
		if got := seal.IsSealedToken(s); got != want {
			t.Errorf("IsSealedToken(%q) = %v", s, got)
		}
	}
}

func TestTokensThatAreNotSealed(t *testing.T) {
	t.Parallel()
	k := testKey(t, "a").Public()
	seed := "SU" + strings.Repeat("A", 54)
	tests := map[string]struct {
		k     seal.PublicKey
		token wire.Secret
		nkey  string
		want  error // nil is any
	}{
		"no key":               {seal.PublicKey{}, secretToken, nkey, seal.ErrKey},
		"no token":             {k, "", nkey, nil},
		"token too large":      {k, wire.Secret(strings.Repeat("x", wire.MaxTokenBytes+1)), nkey, wire.ErrTooLarge},
		"sealed already":       {k, wire.Secret(sealedToken(t, "a", secretToken)), nkey, nil},
		"no nkey":              {k, secretToken, "", nil},
		"nkey too short":       {k, secretToken, nkey[:55], nil},
		"nkey too long":        {k, secretToken, nkey + "A", nil},
		"nkey of an account":   {k, secretToken, "A" + nkey[1:], nil},
		"nkey in lower case":   {k, secretToken, "U" + strings.ToLower(nkey[1:]), nil},
		"a seed for the nkey":  {k, secretToken, seed, nil},
		"nkey not in base32 1": {k, secretToken, "U1" + nkey[2:], nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := seal.SealToken(tt.k, tt.token, tt.nkey)
			if err == nil || s != "" || tt.want != nil && !errors.Is(err, tt.want) {
				t.Fatalf("SealToken = %q, %v; want an error %v", s, err, tt.want)
			}
			if strings.Contains(err.Error(), secretToken) || strings.Contains(err.Error(), seed) {
				t.Errorf("error shows a secret: %v", err)
			}
		})
	}
}

func TestTokensThatDoNotOpen(t *testing.T) {
	t.Parallel()
	good, other := sealedToken(t, "a", secretToken), sealedToken(t, "a", secretToken)
	part, otherPart := strings.Split(good, "."), strings.Split(other, ".")
	join := func(parts ...string) string { return strings.Join(parts, ".") }
	// sealRaw seals what no SealToken would, as a stranger can.
	sealRaw := func(purpose seal.Purpose, aad, text string) string {
		s, _, err := testKey(t, "a").Public().Seal(purpose, []byte(text), []byte(aad))
		if err != nil {
			t.Fatal(err)
		}
		return tokenText(s)
	}
	aad := join("muster-sealed-v1", part[1])
	tests := map[string]struct {
		s    string
		want error
	}{
		"as it is":                  {good, nil},
		"made by another program":   {sealRaw(seal.PurposeConnect, aad, nkey+secretToken), nil},
		"empty":                     {"", seal.ErrOpen},
		"a plain token":             {secretToken, seal.ErrOpen},
		"the prefix only":           {"muster-sealed-v1.", seal.ErrOpen},
		"another version":           {strings.Replace(good, "v1", "v2", 1), seal.ErrOpen},
		"too few parts":             {join(part[:3]...), seal.ErrOpen},
		"too many parts":            {good + ".", seal.ErrOpen},
		"nothing but dots":          {"muster-sealed-v1." + strings.Repeat(".", 5000), seal.ErrOpen},
		"too long":                  {"muster-sealed-v1." + strings.Repeat("A", seal.MaxSealedTokenBytes), seal.ErrOpen},
		"key that is not held":      {sealedToken(t, "b", secretToken), seal.ErrUnknownKey},
		"encapsulated key of other": {join(part[0], part[1], otherPart[2], part[3]), seal.ErrOpen},
		"ciphertext of other":       {join(part[0], part[1], part[2], otherPart[3]), seal.ErrOpen},
		"padded":                    {good + "=", seal.ErrOpen},
		"line end at the end":       {good + "\n", seal.ErrOpen},
		"line end inside":           {join(part[0], part[1], part[2][:9]+"\r\n"+part[2][9:], part[3]), seal.ErrOpen},
		"truncated by a character":  {good[:len(good)-1], seal.ErrOpen},
		"another purpose":           {sealRaw(seal.PurposeEnroll, aad, nkey+secretToken), seal.ErrOpen},
		"no additional data":        {sealRaw(seal.PurposeConnect, "", nkey+secretToken), seal.ErrOpen},
		"nothing in it":             {sealRaw(seal.PurposeConnect, aad, ""), seal.ErrOpen},
		"no token in it":            {sealRaw(seal.PurposeConnect, aad, nkey), seal.ErrOpen},
		"no nkey in it":             {sealRaw(seal.PurposeConnect, aad, secretToken), seal.ErrOpen},
		"token in it too large":     {sealRaw(seal.PurposeConnect, aad, nkey+strings.Repeat("x", wire.MaxTokenBytes+1)), seal.ErrOpen},
		"sealed token in it":        {sealRaw(seal.PurposeConnect, aad, nkey+good), seal.ErrOpen},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token, nkey, err := testOpener(t, "a").OpenToken(tt.s)
			if !errors.Is(err, tt.want) || (err != nil) != (token == "") || (err != nil) != (nkey == "") {
				t.Errorf("OpenToken = %d bytes, %q, %v; want %v", len(token), nkey, err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), secretToken) {
				t.Errorf("error shows the token: %v", err)
			}
		})
	}
}

func TestNoBitOfATokenIsFree(t *testing.T) {
	if testing.Short() {
		t.Skip("opens thousands of tokens")
	}
	t.Parallel()
	o, good := testOpener(t, "a"), []byte(sealedToken(t, "a", secretToken))
	for bit := range len(good) * 8 {
		flipped := slices.Clone(good)
		flipped[bit/8] ^= 1 << (bit % 8)
		if token, nkey, err := o.OpenToken(string(flipped)); err == nil || token != "" || nkey != "" {
			t.Errorf("token with bit %d of byte %d flipped (%q) opens", bit%8, bit/8, flipped[bit/8])
		}
	}
}
