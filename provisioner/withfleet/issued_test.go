package provisioner_test

import (
	"errors"
	"testing"
	"time"

	"muster/provisioner/operate"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
)

// TestIssuedTokens lists one-time tokens until they are used or over, and no
// others.
func TestIssuedTokens(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p := f.Daemon().Operator()
	lasting := func(name wire.Pattern, ttl time.Duration) string {
		return f.Token(func(c *jwt.Claims) { testbed.Limited(1, name)(c); c.ExpiresAt = f.Clock.Now().Add(ttl) })
	}
	once := func(name wire.Pattern) string { return lasting(name, time.Hour) }
	listed := func() map[jwt.TokenID]int {
		t.Helper()
		tokens, err := testbed.Orders(p).Tokens.List(f.Context())
		if err != nil {
			t.Fatal(err)
		}
		left := map[jwt.TokenID]int{}
		for _, token := range tokens {
			if token.Left == nil {
				t.Errorf("token %s: no uses that are left", token.ID)
			}
			left[token.ID] = token.Remaining()
		}
		return left
	}
	used, unused := once("web1.example.net"), once("web2.example.net")
	for _, text := range []string{used, unused, unused} {
		if info, err := testbed.Orders(p).Tokens.Issue(f.Context(), text, operator); err != nil || info.ID != f.TokenID(text) || info.IssuedBy != "ann" {
			t.Fatalf("issued %+v, %v", info, err)
		}
	}
	if l := listed(); len(l) != 2 || l[f.TokenID(used)] != 1 {
		t.Errorf("listed with uses left: %v", l)
	}
	for what, text := range map[string]string{
		"many uses": f.Token(testbed.Limited(2, "web1.example.net")), "any name": f.Token(testbed.Limited(1)),
		"a pattern": f.Token(testbed.Limited(1, "web*.example.net")), "no token": "x", "the broker's name": once("broker.fleet.test"),
		"for centuries": lasting("web3.example.net", 100_000*24*time.Hour), "a while too long": lasting("web3.example.net", operate.MaxIssuedTTL+2*jwt.NotBeforeLeeway),
		"without an end": f.Token(func(c *jwt.Claims) { testbed.Limited(1, "web3.example.net")(c); c.ExpiresAt = time.Time{} }),
	} {
		if _, err := testbed.Orders(p).Tokens.Issue(f.Context(), text, operator); !errors.Is(err, operate.ErrNotOneTime) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The signer's clock is a little ahead.
	if _, err := testbed.Orders(p).Tokens.Issue(f.Context(), lasting("web4.example.net", operate.MaxIssuedTTL+jwt.NotBeforeLeeway/2), operator); err != nil {
		t.Errorf("for as long as it may be: %v", err)
	}
	n := f.Node("web1.example.net")
	n.Token = used
	f.Apply(n, f.Enroll(n))
	if l := listed(); len(l) != 3 || l[f.TokenID(used)] != 0 {
		t.Errorf("listed after a use: %v", l)
	}
	f.Clock.Advance(2 * time.Hour)
	if l := listed(); len(l) != 2 {
		t.Errorf("listed after their end: %v, want the one that was used and the one that lasts", l)
	}
	f.Check()
}
