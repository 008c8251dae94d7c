package jwt_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"muster/jwt"
)

// A purse is a budget of so many checks.
type purse struct {
	mu   sync.Mutex
	left int // guarded by mu
}

func (p *purse) Charge() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		return false
	}
	p.left--
	return true
}

func (p *purse) Refund() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left++
}

// forged returns a token with another signature.
func forged(text string) string {
	at := strings.LastIndex(text, ".") + 1
	return text[:at] + map[bool]string{true: "B", false: "A"}[text[at] == 'A'] + text[at+1:]
}

// Texts of all kinds are verified on a budget of three.
func TestForgeriesAreCharged(t *testing.T) {
	t.Parallel()
	key, other := edKey("signer"), edKey("other")
	good := sign(t, key, goodClaims())
	tests := map[string]struct {
		text string
		want error
		left int
	}{
		"a good token": {good, nil, 3},
		"a good token that the second key signed": {sign(t, other, goodClaims()), nil, 3},
		"a forgery, tried with both keys":         {sign(t, edKey("forger"), goodClaims()), jwt.ErrSignature, 2},
		"a damaged text":                          {forged(good), jwt.ErrSignature, 2},
		"no token at all":                         {"..", jwt.ErrMalformed, 2},
		"no key for its algorithm":                {sign(t, rsaKey(), goodClaims()), jwt.ErrUnknownSigner, 2},
		"too long to look at": {good + string(make([]byte, jwt.MaxTokenBytes)), jwt.ErrMalformed,
			3},
		"authentic, but for something else": {craft(edHeader, `{"purpose":"other","sub":"other"}`, withEd(key)),
			jwt.ErrPurpose, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &purse{left: 3}
			v := verifier(t, jwt.Signer{Key: key.Public()}, jwt.Signer{Key: other.Public()})
			if _, err := v.VerifyFrom(tt.text, p); !errors.Is(err, tt.want) {
				t.Fatalf("VerifyFrom = %v, want %v", err, tt.want)
			}
			if p.left != tt.left {
				t.Errorf("%d left of 3, want %d", p.left, tt.left)
			}
		})
	}
}

// After a sender has spent its budget on forgeries, only cached texts of that sender are accepted. Other senders are
// not affected.
func TestASpentBudgetStopsOnlyItsSender(t *testing.T) {
	t.Parallel()
	key := edKey("signer")
	v := verifier(t, jwt.Signer{Key: key.Public()})
	known := sign(t, key, goodClaims())
	if _, err := v.Verify(known); err != nil {
		t.Fatal(err)
	}
	p := &purse{left: 2}
	forgery := forged(known)
	for range 2 {
		if _, err := v.VerifyFrom(forgery, p); err == nil || errors.Is(err, jwt.ErrBudget) {
			t.Fatalf("VerifyFrom = %v, want it checked", err)
		}
	}
	claims := goodClaims()
	claims.JTI = "another"
	unknown := sign(t, key, claims)
	for what, text := range map[string]string{"a forgery": forgery, "a good token that is not cached": unknown} {
		if got, err := v.VerifyFrom(text, p); !errors.Is(err, jwt.ErrBudget) || got != nil {
			t.Errorf("%s: VerifyFrom = %v, %v, want %v alone", what, got, err, jwt.ErrBudget)
		}
	}
	if _, err := v.VerifyFrom(known, p); err != nil {
		t.Errorf("a token that is remembered: %v", err)
	}
	if _, err := v.VerifyFrom(unknown, &purse{left: 1}); err != nil {
		t.Errorf("another sender: %v", err)
	}
}
