package seal_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"muster/internal/seal"
	"muster/internal/wire"
)

const nonce = "9dYvQ2kGmTJcPZw"

func presented(t testing.TB, s *seal.Session) seal.Presented {
	t.Helper()
	proof, err := s.Prove([]byte(nonce))
	if err != nil {
		t.Fatal(err)
	}
	return seal.Presented{Token: s.Token(), Name: s.Name(), Signature: base64.RawURLEncoding.EncodeToString(proof),
		Nonce: nonce}
}

// presents returns what a connection with this token presents.
func presents(t testing.TB, name string, token wire.Secret) seal.Presented {
	t.Helper()
	s, err := seal.NewSession(testKey(t, name).Public(), token)
	if err != nil {
		t.Fatal(err)
	}
	return presented(t, s)
}

func TestSealedTokenRoundTrip(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a", "b")
	for name, token := range map[string]wire.Secret{
		"a token": secretToken, "a character": "x", "the largest": wire.Secret(strings.Repeat("x", wire.MaxTokenBytes)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := presents(t, "b", token)
			s := p.Token
			if !seal.IsSealedToken(s) || len(s) > seal.MaxSealedTokenBytes || len(token) == wire.MaxTokenBytes &&
				len(s) != seal.MaxSealedTokenBytes {
				t.Errorf("sealed token of %d bytes, limit %d", len(s), seal.MaxSealedTokenBytes)
			}
			if strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
				t.Errorf("sealed token %q has other characters than a token", s)
			}
			for range 2 { // the second time it is remembered
				if got, err := o.OpenToken(p); err != nil || got != token {
					t.Errorf("OpenToken = %d bytes, %v", len(got), err)
				}
			}
			if again := presents(t, "b", token); s == again.Token || p.Name == again.Name ||
				p.Signature == again.Signature {
				t.Error("the same token sealed twice presents something twice")
			}
		})
	}
}

func TestSealedTokenHides(t *testing.T) {
	t.Parallel()
	p := presents(t, "a", secretToken)
	for _, part := range append(strings.Split(p.Token, "."), p.Token, p.Name, p.Signature) {
		raw, _ := base64.RawURLEncoding.DecodeString(part)
		for _, secret := range strings.Split(secretToken, ".") {
			if strings.Contains(part, secret) || strings.Contains(string(raw), secret) {
				t.Errorf("%q shows %q", part, secret)
			}
		}
	}
}

func TestTokensThatAreNotSealed(t *testing.T) {
	t.Parallel()
	k := testKey(t, "a").Public()
	tests := map[string]struct {
		k     seal.PublicKey
		token wire.Secret
		want  error // nil is any
	}{
		"no key":          {seal.PublicKey{}, secretToken, seal.ErrKey},
		"no token":        {k, "", nil},
		"token too large": {k, wire.Secret(strings.Repeat("x", wire.MaxTokenBytes+1)), wire.ErrTooLarge},
		"sealed already":  {k, wire.Secret(testSession(t, "a").Token()), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := seal.NewSession(tt.k, tt.token)
			if err == nil || s != nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Fatalf("NewSession = %v, %v; want an error %v", s, err, tt.want)
			}
			if strings.Contains(err.Error(), secretToken) {
				t.Errorf("error shows a secret: %v", err)
			}
		})
	}
}

func TestTokensThatDoNotOpen(t *testing.T) {
	t.Parallel()
	session, other := testSession(t, "a"), testSession(t, "a")
	good := session.Token()
	part, otherPart := strings.Split(good, "."), strings.Split(other.Token(), ".")
	join := func(parts ...string) string { return strings.Join(parts, ".") }
	// raw seals text that NewSession would refuse.
	raw := func(purpose seal.Purpose, text string) string {
		s, _, err := session.Seal(purpose, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return tokenText(s)
	}
	tests := map[string]struct {
		s    string
		want error
	}{
		"as it is":                  {good, nil},
		"made by another program":   {raw(seal.PurposeConnect, secretToken), nil},
		"empty":                     {"", seal.ErrOpen},
		"a plain token":             {secretToken, seal.ErrOpen},
		"the prefix only":           {"muster-sealed-v1.", seal.ErrOpen},
		"another version":           {strings.Replace(good, "v1", "v2", 1), seal.ErrOpen},
		"too few parts":             {join(part[:3]...), seal.ErrOpen},
		"too many parts":            {good + ".", seal.ErrOpen},
		"nothing but dots":          {"muster-sealed-v1." + strings.Repeat(".", 5000), seal.ErrOpen},
		"too long":                  {"muster-sealed-v1." + strings.Repeat("A", seal.MaxSealedTokenBytes), seal.ErrOpen},
		"key that is not held":      {join(part[0], testKey(t, "b").Public().ID(), part[2], part[3]), seal.ErrUnknownKey},
		"encapsulated key of other": {join(part[0], part[1], otherPart[2], part[3]), seal.ErrProof},
		"ciphertext of other":       {join(part[0], part[1], part[2], otherPart[3]), seal.ErrOpen},
		"padded":                    {good + "=", seal.ErrOpen},
		"line end at the end":       {good + "\n", seal.ErrOpen},
		"line end inside":           {join(part[0], part[1], part[2][:9]+"\r\n"+part[2][9:], part[3]), seal.ErrOpen},
		"truncated by a character":  {good[:len(good)-1], seal.ErrOpen},
		"another purpose":           {raw(seal.PurposeEnroll, secretToken), seal.ErrOpen},
		"nothing in it":             {raw(seal.PurposeConnect, ""), seal.ErrOpen},
		"token in it too large":     {raw(seal.PurposeConnect, strings.Repeat("x", wire.MaxTokenBytes+1)), seal.ErrOpen},
		"sealed token in it":        {raw(seal.PurposeConnect, good), seal.ErrOpen},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := presented(t, session)
			p.Token = tt.s
			token, err := testOpener(t, "a").OpenToken(p)
			if !errors.Is(err, tt.want) || (err != nil) != (token == "") {
				t.Errorf("OpenToken = %d bytes, %v; want %v", len(token), err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), secretToken) {
				t.Errorf("error shows the token: %v", err)
			}
		})
	}
}

// A recorded token comes on other connections, to an opener with its session cached and to one without.
func TestTokenOpensOnlyOnItsConnection(t *testing.T) {
	t.Parallel()
	remembers := testOpener(t, "a")
	session := testSession(t, "a")
	good, other := presented(t, session), presents(t, "a", secretToken)
	if _, err := remembers.OpenToken(good); err != nil {
		t.Fatal(err)
	}
	empty, err := session.Prove(nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]func(p *seal.Presented){
		"another nonce":             func(p *seal.Presented) { p.Nonce += "x" },
		"no nonce":                  func(p *seal.Presented) { p.Nonce = "" },
		"no nonce, and proven so":   func(p *seal.Presented) { p.Nonce, p.Signature = "", base64.RawURLEncoding.EncodeToString(empty) },
		"no proof":                  func(p *seal.Presented) { p.Signature = "" },
		"a part of the proof":       func(p *seal.Presented) { p.Signature = p.Signature[:20] },
		"the proof, padded":         func(p *seal.Presented) { p.Signature += "=" },
		"the proof of another":      func(p *seal.Presented) { p.Signature = other.Signature },
		"the name of another":       func(p *seal.Presented) { p.Name = other.Name },
		"name and proof of another": func(p *seal.Presented) { p.Name, p.Signature = other.Name, other.Signature },
		"no name":                   func(p *seal.Presented) { p.Name = "" },
		"all of it under another key": func(p *seal.Presented) {
			p.Token = strings.Replace(p.Token, testKey(t, "a").Public().ID(), testKey(t, "b").Public().ID(), 1)
		},
	}
	for name, edit := range tests {
		for what, o := range map[string]*seal.Opener{"remembered": remembers, "new": testOpener(t, "a", "b"),
			"both keys": testOpener(t, "b", "a")} {
			p := good
			edit(&p)
			if strings.Contains(p.Token, testKey(t, "b").Public().ID()) && what == "remembered" {
				continue // it does not hold that key
			}
			if token, err := o.OpenToken(p); !errors.Is(err, seal.ErrProof) || token != "" {
				t.Errorf("%s, %s: OpenToken = %d bytes, %v; want %v", name, what, len(token), err, seal.ErrProof)
			}
		}
	}
	if n := remembers.Remembered(); n != 1 {
		t.Errorf("%d sessions remembered, want the one that opened", n)
	}
}
