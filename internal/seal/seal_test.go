package seal_test

import (
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"muster/internal/seal"
	"muster/internal/wire"
)

// testKey returns the same key for the same name.
func testKey(t testing.TB, name string) *seal.PrivateKey {
	t.Helper()
	k, err := seal.NewPrivateKey(ecdhKey(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func ecdhKey(t testing.TB, name string) *ecdh.PrivateKey {
	t.Helper()
	seed := sha256.Sum256([]byte("muster seal test key " + name))
	k, err := ecdh.X25519().NewPrivateKey(seed[:])
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func testOpener(t testing.TB, names ...string) *seal.Opener {
	t.Helper()
	var keys []*seal.PrivateKey
	for _, name := range names {
		keys = append(keys, testKey(t, name))
	}
	o, err := seal.NewOpener(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func testSession(t testing.TB, name string) *seal.Session {
	t.Helper()
	s, err := seal.NewSession(testKey(t, name).Public(), secretToken)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSeal(t testing.TB, name string, purpose seal.Purpose, plaintext string) (*wire.Envelope, *seal.ReplyOpener) {
	t.Helper()
	s, reply, err := testSession(t, name).Seal(purpose, []byte(plaintext))
	if err != nil {
		t.Fatal(err)
	}
	return s, reply
}

// refused checks that s does not open, with the error want.
func refused(t *testing.T, o *seal.Opener, purpose seal.Purpose, s *wire.Envelope, want error) {
	t.Helper()
	plaintext, reply, err := o.Open(purpose, s)
	if !errors.Is(err, want) || plaintext != nil || reply != nil {
		t.Errorf("Open = %q, %v, %v; want only an error %v", plaintext, reply, err, want)
	}
}

func TestSealRoundTrip(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a")
	tests := map[string]struct{ plaintext, reply string }{
		"short":                 {"hello", "hello yourself"},
		"nothing at all":        {"", ""},
		"just below a block":    {strings.Repeat("x", 251), strings.Repeat("y", 251)},
		"a block":               {strings.Repeat("x", 252), strings.Repeat("y", 252)},
		"just above a block":    {strings.Repeat("x", 253), strings.Repeat("y", 253)},
		"zeros, as the padding": {strings.Repeat("\x00", 300), "\x00"},
		"the largest":           {strings.Repeat("x", wire.MaxMessageBytes), strings.Repeat("y", wire.MaxReplyBytes)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, purpose := range []seal.Purpose{seal.PurposeEnroll, seal.PurposeApplied, seal.PurposeConnect} {
				s, opener := mustSeal(t, "a", purpose, tt.plaintext)
				if len(s.Encapsulated) != 32 || len(s.Ciphertext)%256 != 48 {
					t.Fatalf("sealed %d bytes to %d and %d", len(tt.plaintext), len(s.Encapsulated), len(s.Ciphertext))
				}
				got, sealer, err := o.Open(purpose, s)
				if err != nil || string(got) != tt.plaintext {
					t.Fatalf("Open = %.40q, %v; want %.40q", got, err, tt.plaintext)
				}
				frame, err := sealer.Seal([]byte(tt.reply))
				if err != nil || len(frame)%256 != 48 {
					t.Fatalf("reply of %d bytes: frame of %d, %v", len(tt.reply), len(frame), err)
				}
				answer, err := opener.Open(frame)
				if err != nil || string(answer) != tt.reply {
					t.Fatalf("reply = %.40q, %v; want %.40q", answer, err, tt.reply)
				}
			}
		})
	}
}

func tokenText(s *wire.Envelope) string {
	enc := base64.RawURLEncoding
	return strings.Join([]string{"muster-sealed-v1", s.Key, enc.EncodeToString(s.Encapsulated),
		enc.EncodeToString(s.Ciphertext)}, ".")
}

// TestEveryBitIsAuthenticated flips every bit that is sent.
func TestEveryBitIsAuthenticated(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a")
	s, opener := mustSeal(t, "a", seal.PurposeEnroll, "question")
	_, sealer, err := o.Open(seal.PurposeEnroll, s)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := sealer.Seal([]byte("answer"))
	if err != nil {
		t.Fatal(err)
	}
	eachBit := func(b []byte, try func(t *testing.T, flipped []byte)) func(*testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			for bit := range len(b) * 8 {
				flipped := slices.Clone(b)
				flipped[bit/8] ^= 1 << (bit % 8)
				try(t, flipped)
			}
		}
	}
	t.Run("key", eachBit([]byte(s.Key), func(t *testing.T, b []byte) {
		refused(t, o, seal.PurposeEnroll, &wire.Envelope{Sealed: true, Key: string(b), Encapsulated: s.Encapsulated,
			Ciphertext: s.Ciphertext}, seal.ErrUnknownKey)
	}))
	t.Run("encapsulated key", eachBit(s.Encapsulated, func(t *testing.T, b []byte) {
		refused(t, o, seal.PurposeEnroll, &wire.Envelope{Sealed: true, Key: s.Key, Encapsulated: b,
			Ciphertext: s.Ciphertext}, seal.ErrOpen)
	}))
	t.Run("ciphertext", eachBit(s.Ciphertext, func(t *testing.T, b []byte) {
		refused(t, o, seal.PurposeEnroll, &wire.Envelope{Sealed: true, Key: s.Key, Encapsulated: s.Encapsulated,
			Ciphertext: b}, seal.ErrOpen)
	}))
	t.Run("reply", eachBit(frame, func(t *testing.T, b []byte) {
		if got, err := opener.Open(b); !errors.Is(err, seal.ErrOpen) || got != nil {
			t.Errorf("reply with a flipped bit = %q, %v", got, err)
		}
	}))
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a", "b")
	other, _ := mustSeal(t, "a", seal.PurposeEnroll, "question")
	foreign, _ := mustSeal(t, "c", seal.PurposeEnroll, "question")
	tests := map[string]struct {
		edit func(*wire.Envelope)
		want error
	}{
		"as it is":                       {func(*wire.Envelope) {}, nil},
		"a key that is not held":         {func(s *wire.Envelope) { *s = *foreign }, seal.ErrUnknownKey},
		"no key":                         {func(s *wire.Envelope) { s.Key = "" }, seal.ErrUnknownKey},
		"the other key that is held":     {func(s *wire.Envelope) { s.Key = testKey(t, "b").Public().ID() }, seal.ErrOpen},
		"encapsulated key of another":    {func(s *wire.Envelope) { s.Encapsulated = other.Encapsulated }, seal.ErrOpen},
		"ciphertext of another":          {func(s *wire.Envelope) { s.Ciphertext = other.Ciphertext }, seal.ErrOpen},
		"no encapsulated key":            {func(s *wire.Envelope) { s.Encapsulated = nil }, seal.ErrOpen},
		"encapsulated key of 31 bytes":   {func(s *wire.Envelope) { s.Encapsulated = s.Encapsulated[:31] }, seal.ErrOpen},
		"encapsulated key of 33 bytes":   {func(s *wire.Envelope) { s.Encapsulated = append(s.Encapsulated, 0) }, seal.ErrOpen},
		"encapsulated key of zeros":      {func(s *wire.Envelope) { s.Encapsulated = make([]byte, 32) }, seal.ErrOpen},
		"no ciphertext":                  {func(s *wire.Envelope) { s.Ciphertext = nil }, seal.ErrOpen},
		"salt and tag only":              {func(s *wire.Envelope) { s.Ciphertext = s.Ciphertext[:48] }, seal.ErrOpen},
		"a salt of its own":              {func(s *wire.Envelope) { s.Ciphertext[31]++ }, seal.ErrOpen},
		"salt of another":                {func(s *wire.Envelope) { copy(s.Ciphertext, other.Ciphertext[:32]) }, seal.ErrOpen},
		"truncated by a byte":            {func(s *wire.Envelope) { s.Ciphertext = s.Ciphertext[:len(s.Ciphertext)-1] }, seal.ErrOpen},
		"truncated by a block":           {func(s *wire.Envelope) { s.Ciphertext = s.Ciphertext[:len(s.Ciphertext)-256] }, seal.ErrOpen},
		"longer by a byte":               {func(s *wire.Envelope) { s.Ciphertext = append(s.Ciphertext, 0) }, seal.ErrOpen},
		"longer by a block":              {func(s *wire.Envelope) { s.Ciphertext = append(s.Ciphertext, make([]byte, 256)...) }, seal.ErrOpen},
		"far too long":                   {func(s *wire.Envelope) { s.Ciphertext = make([]byte, 1<<20+48) }, seal.ErrOpen},
		"sealed without padding":         {unpadded(t, []byte("question")), seal.ErrOpen},
		"padded with something":          {unpadded(t, append(byHand("question")[:255], 1)), seal.ErrOpen},
		"padded by a block too much":     {unpadded(t, append(byHand("question"), make([]byte, 256)...)), seal.ErrOpen},
		"length beyond the end":          {unpadded(t, append([]byte{0, 0, 0, 253}, make([]byte, 252)...)), seal.ErrOpen},
		"length of four gigabytes":       {unpadded(t, append([]byte{255, 255, 255, 255}, make([]byte, 252)...)), seal.ErrOpen},
		"well sealed, but too large":     {unpadded(t, padOf(wire.MaxMessageBytes+256)), seal.ErrOpen},
		"ours, the padding made by hand": {unpadded(t, byHand("question")), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := mustSeal(t, "a", seal.PurposeEnroll, strings.Repeat("question", 64))
			tt.edit(s)
			if tt.want != nil {
				refused(t, o, seal.PurposeEnroll, s, tt.want)
			} else if _, _, err := o.Open(seal.PurposeEnroll, s); err != nil {
				t.Errorf("Open: %v", err)
			}
		})
	}
}

func padOf(n int) []byte {
	b := make([]byte, seal.Padded(n))
	seal.Pad(b, make([]byte, n))
	return b
}

func unpadded(t *testing.T, b []byte) func(*wire.Envelope) {
	return func(s *wire.Envelope) {
		raw, err := testSession(t, "a").SealUnpadded(seal.PurposeEnroll, b)
		if err != nil {
			t.Fatal(err)
		}
		*s = *raw
	}
}

func TestReplyOpensOnlyForItsRequest(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a")
	var openers []*seal.ReplyOpener
	var frames [][]byte
	for range 2 {
		s, opener := mustSeal(t, "a", seal.PurposeEnroll, "the same question")
		_, sealer, err := o.Open(seal.PurposeEnroll, s)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := sealer.Seal([]byte("answer"))
		if err != nil {
			t.Fatal(err)
		}
		openers, frames = append(openers, opener), append(frames, frame)
	}
	spliced := append(slices.Clone(frames[0][:32]), frames[1][32:]...)
	for i, opener := range openers {
		for name, frame := range map[string][]byte{
			"of the other": frames[1-i], "spliced": spliced, "empty": nil, "salt and tag only": frames[i][:48],
			"truncated by a byte": frames[i][:len(frames[i])-1], "longer by a block": append(slices.Clone(frames[i]),
				make([]byte, 256)...),
			"far too long": make([]byte, 1<<20+48),
		} {
			if got, err := opener.Open(frame); !errors.Is(err, seal.ErrOpen) || got != nil {
				t.Errorf("request %d, reply %s = %q, %v; want %v", i, name, got, err, seal.ErrOpen)
			}
		}
		if got, err := opener.Open(frames[i]); err != nil || string(got) != "answer" {
			t.Errorf("request %d, its own reply after the other replies = %q, %v", i, got, err)
		}
	}
}

// A recorded request is opened twice; the two replies share nothing.
func TestReplayedRequestReusesNoKey(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a")
	s, opener := mustSeal(t, "a", seal.PurposeEnroll, "question")
	seen := map[string]bool{}
	for range 2 {
		_, sealer, err := o.Open(seal.PurposeEnroll, s)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			frame, err := sealer.Seal([]byte("answer"))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := opener.Open(frame); err != nil || string(got) != "answer" {
				t.Fatalf("reply = %q, %v", got, err)
			}
			for _, part := range []string{string(frame[:32]), string(frame[32:48])} {
				if seen[part] {
					t.Error("two replies begin alike")
				}
				seen[part] = true
			}
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	before, during, after := testOpener(t, "old"), testOpener(t, "old", "new"), testOpener(t, "new")
	tests := map[string]struct {
		o          *seal.Opener
		toOld, new error
	}{
		"before": {before, nil, seal.ErrUnknownKey}, "during": {during, nil, nil}, "after": {after, seal.ErrUnknownKey, nil},
	}
	for name, tt := range tests {
		for key, want := range map[string]error{"old": tt.toOld, "new": tt.new} {
			s, _ := mustSeal(t, key, seal.PurposeEnroll, "question")
			got, _, err := tt.o.Open(seal.PurposeEnroll, s)
			if !errors.Is(err, want) || want == nil && string(got) != "question" {
				t.Errorf("%s rotation, sealed to the %s key: %q, %v; want %v", name, key, got, err, want)
			}
		}
	}
}

func TestZeroKeyCannotSeal(t *testing.T) {
	t.Parallel()
	if s, err := seal.NewSession(seal.PublicKey{}, secretToken); !errors.Is(err, seal.ErrKey) || s != nil {
		t.Errorf("session with the zero key = %v, %v", s, err)
	}
}

func TestPurposesAreSeparate(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a")
	for from := range labels {
		s, _ := mustSeal(t, "a", from, "question")
		for to := range labels {
			if from != to {
				refused(t, o, to, s, seal.ErrOpen)
			}
		}
	}
}
