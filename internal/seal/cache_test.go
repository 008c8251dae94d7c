package seal_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"muster/internal/seal"
	"muster/internal/wire"
)

// TestOneSessionManyMessages carries a connection's three messages to one opener,
// and to three that have never heard of each other: whoever opens what, it is the
// same.
func TestOneSessionManyMessages(t *testing.T) {
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
					t.Errorf("%s: a message of session %q, want %q", name, seal.SessionName(s.Encapsulated), session.Name())
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

// TestMessagesOfASessionShareNothing seals the same thing many times in one
// session: no salt is used twice, no two ciphertexts have a block in common, and no
// reply opens for another request, purpose or session.
func TestMessagesOfASessionShareNothing(t *testing.T) {
	t.Parallel()
	o, session := testOpener(t, "a"), testSession(t, "a")
	type exchange struct {
		opener *seal.ReplyOpener
		frame  []byte
	}
	var all []exchange
	seen := map[string]bool{}
	for i := range 64 {
		s, opener, err := session.Seal([]seal.Purpose{seal.PurposeEnroll, seal.PurposeApplied}[i%2], []byte("the same question"))
		if err != nil {
			t.Fatal(err)
		}
		_, sealer, err := o.Open([]seal.Purpose{seal.PurposeEnroll, seal.PurposeApplied}[i%2], s)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := sealer.Seal([]byte("the same answer"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, exchange{opener, frame})
		for _, b := range [][]byte{s.Ciphertext, frame} {
			for ; len(b) >= 16; b = b[16:] {
				if seen[string(b[:16])] {
					t.Fatal("a block is seen twice")
				}
				seen[string(b[:16])] = true
			}
		}
	}
	for i, x := range all {
		for j, y := range all {
			if got, err := x.opener.Open(y.frame); i != j && !errors.Is(err, seal.ErrOpen) {
				t.Errorf("reply %d opens for request %d: %q, %v", j, i, got, err)
			}
		}
	}
}

// TestAMessageIsOfItsSession has a message claim another session, remembered or
// not, whose salt and ciphertext it has: it does not open.
func TestAMessageIsOfItsSession(t *testing.T) {
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
			refused(t, o, seal.PurposeEnroll, &seal.Sealed{Key: recorded.Key, Encapsulated: mine.Encapsulated, Ciphertext: recorded.Ciphertext}, seal.ErrOpen)
			refused(t, o, seal.PurposeEnroll, &seal.Sealed{Key: recorded.Key, Encapsulated: recorded.Encapsulated, Ciphertext: mine.Ciphertext}, seal.ErrOpen)
			refused(t, o, seal.PurposeApplied, recorded, seal.ErrOpen)
			refused(t, o, seal.PurposeConnect, recorded, seal.ErrOpen)
		})
	}
}

// TestOnlyWhatOpensIsRemembered sends what names sessions and proves none.
func TestOnlyWhatOpensIsRemembered(t *testing.T) {
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

// TestWhatIsRememberedIsBounded floods an opener with sessions, and then leaves it
// alone. What it has forgotten opens as before.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	t.Parallel()
	const bound = 50
	o := testOpener(t, "a")
	var mu sync.Mutex
	now := time.Now()
	o.Remember(func() time.Time { mu.Lock(); defer mu.Unlock(); return now }, bound)
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	first, _ := mustSeal(t, "a", seal.PurposeEnroll, "the first")
	opens := func() {
		t.Helper()
		if got, _, err := o.Open(seal.PurposeEnroll, first); err != nil || string(got) != "the first" {
			t.Errorf("the first session: %q, %v", got, err)
		}
	}
	most := 0
	for range 5*bound + bound/2 {
		opens() // in use all the time, it stays
		s, _ := mustSeal(t, "a", seal.PurposeEnroll, "")
		if _, _, err := o.Open(seal.PurposeEnroll, s); err != nil {
			t.Fatal(err)
		}
		if most = max(most, o.Remembered()); !o.Remembers(first) {
			t.Fatal("a session that is in use is forgotten")
		}
	}
	if most <= bound || most > 2*bound {
		t.Errorf("at most %d sessions remembered, want up to %d", most, 2*bound)
	}
	pass(seal.CacheAge)
	opens() // moves to the young generation
	pass(seal.CacheAge)
	opens()
	if n := o.Remembered(); n > 2 { // it may be in both
		t.Errorf("%d sessions remembered that nobody has used for two generations", n-1)
	}
	pass(2 * seal.CacheAge)
	s, _ := mustSeal(t, "a", seal.PurposeEnroll, "")
	if _, _, err := o.Open(seal.PurposeEnroll, s); err != nil {
		t.Fatal(err)
	}
	if n := o.Remembered(); n != 1 {
		t.Errorf("%d sessions remembered after a pause, want the one that came after it", n)
	}
	opens()
}

// TestOpenersOfTwoKeysKeepThemApart has one session's encapsulated key come under
// the id of another key that is held: that is another session.
func TestOpenersOfTwoKeysKeepThemApart(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a", "b")
	s, _ := mustSeal(t, "a", seal.PurposeEnroll, "question")
	if _, _, err := o.Open(seal.PurposeEnroll, s); err != nil {
		t.Fatal(err)
	}
	refused(t, o, seal.PurposeEnroll, &seal.Sealed{Key: testKey(t, "b").Public().ID(), Encapsulated: s.Encapsulated, Ciphertext: s.Ciphertext}, seal.ErrOpen)
	if _, err := wire.Open(wire.EncodeSealed(s.Key, s.Encapsulated, s.Ciphertext), wire.MaxMessageBytes); err != nil {
		t.Error(err)
	}
}
