package seal_test

import (
	"errors"
	"testing"

	"muster/internal/seal"
	"muster/internal/wire"
)

// One opener, and three separate ones, open a connection's three messages alike.
func TestAnyOpenerOpensAnyMessageOfASession(t *testing.T) {
	t.Parallel()
	one := testOpener(t, "a")
	for name, next := range map[string]func() *seal.Opener{
		"one provisioner": func() *seal.Opener { return one }, "one for each": func() *seal.Opener { return testOpener(t, "b", "a") },
	} {
		session := testSession(t, "a")
		if token, err := next().OpenToken(presented(t, session)); err != nil || token != secretToken {
			t.Errorf("%s: token = %q, %v", name, string(token), err)
		}
		for range 2 { // a node asks again
			for _, purpose := range []seal.Purpose{seal.PurposeEnroll, seal.PurposeApplied} {
				s, opener, err := session.Seal(purpose, []byte("question"))
				if err != nil {
					t.Fatal(err)
				}
				if seal.SessionName(s.Encapsulated) != session.Name() {
					t.Errorf("%s: a message of session %q, want %q", name, seal.SessionName(s.Encapsulated),
						session.Name())
				}
				got, sealer, err := next().Open(purpose, s)
				if err != nil || string(got) != "question" {
					t.Fatalf("%s: Open = %q, %v", name, got, err)
				}
				frame, err := sealer.Seal([]byte("answer"))
				if err != nil {
					t.Fatal(err)
				}
				if answer, err := opener.Open(frame); err != nil || string(answer) != "answer" {
					t.Errorf("%s: reply = %q, %v", name, answer, err)
				}
			}
		}
	}
	if n := one.Remembered(); n != 1 {
		t.Errorf("%d sessions remembered, want 1", n)
	}
}

// A message with another session's key does not open, cached or not.
func TestMessageOpensOnlyInItsSession(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a")
	victim, thief := testSession(t, "a"), testSession(t, "a")
	for _, s := range []*seal.Session{victim, thief} {
		if _, err := o.OpenToken(presented(t, s)); err != nil {
			t.Fatal(err)
		}
	}
	recorded, _, err := victim.Seal(seal.PurposeEnroll, []byte("question"))
	if err != nil {
		t.Fatal(err)
	}
	mine, _, err := thief.Seal(seal.PurposeEnroll, []byte("question"))
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]*seal.Opener{"remembered": o, "new": testOpener(t, "a")} {
		t.Run(name, func(t *testing.T) {
			refused(t, o, seal.PurposeEnroll, &wire.Envelope{Sealed: true, Key: recorded.Key,
				Encapsulated: mine.Encapsulated, Ciphertext: recorded.Ciphertext}, seal.ErrOpen)
			refused(t, o, seal.PurposeEnroll, &wire.Envelope{Sealed: true, Key: recorded.Key,
				Encapsulated: recorded.Encapsulated, Ciphertext: mine.Ciphertext}, seal.ErrOpen)
			refused(t, o, seal.PurposeApplied, recorded, seal.ErrOpen)
			refused(t, o, seal.PurposeConnect, recorded, seal.ErrOpen)
		})
	}
}

func TestOnlyOpenedSessionsAreCached(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a")
	for range 8 {
		session := testSession(t, "a")
		p := presented(t, session)
		p.Nonce += "x"
		if _, err := o.OpenToken(p); !errors.Is(err, seal.ErrProof) {
			t.Errorf("OpenToken: %v", err)
		}
		s, _, err := session.Seal(seal.PurposeEnroll, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Ciphertext[40]++
		refused(t, o, seal.PurposeEnroll, s, seal.ErrOpen)
	}
	if n := o.Remembered(); n != 0 {
		t.Errorf("%d sessions remembered that nothing has opened of, want none", n)
	}
}

// An evicted session opens as before.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a")
	first, _ := mustSeal(t, "a", seal.PurposeEnroll, "the first")
	for range 2 {
		if got, _, err := o.Open(seal.PurposeEnroll, first); err != nil || string(got) != "the first" {
			t.Errorf("Open = %q, %v", got, err)
		}
		o.Fill(2 * seal.CacheEntries)
		if n := o.Remembered(); n != seal.CacheEntries {
			t.Errorf("%d sessions remembered, want %d", n, seal.CacheEntries)
		}
	}
}
