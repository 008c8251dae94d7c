package provisioner_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/jwt"
	"muster/provisioner"
)

// TestTokensAreListedWhoeverSignedThem uses tokens that nobody has registered,
// limited and not, at two provisioners and over a restart.
func TestTokensAreListedWhoeverSignedThem(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0)})
	if tokens, err := provisioners(t, f, 1)[0].Tokens(f.Context()); err != nil || len(tokens) != 0 {
		t.Errorf("tokens of an unused fleet = %v, %v", tokens, err)
	}
	limited := f.Token(func(c *jwt.Claims) { testbed.Limited(3, "web*.example.net")(c); c.JTI = strings.Repeat("j", 500) })
	unlimited := f.Token(func(c *jwt.Claims) { c.JTI = "" })
	unused := f.Token(testbed.Limited(1))
	source := provisioner.Source{Address: "192.0.2.7"}
	for i, p := range provisioners(t, f, 2) {
		for _, token := range []string{limited, unlimited} {
			n := node(t, fmt.Sprintf("web%d%d.example.net", i, len(token)), token)
			for range 2 {
				if _, err := patiently(f, p, n, source); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.Clock.Advance(time.Hour)
	}
	claimed(t, f, node(t, "web9.example.net", limited))
	check := func() {
		t.Helper()
		p := provisioners(t, f, 1)[0]
		var tokens []provisioner.TokenSummary
		f.Eventually("both tokens are listed", func() bool {
			var err error
			if tokens, err = p.Tokens(f.Context()); err != nil {
				t.Fatal(err)
			}
			return len(tokens) == 2 // a note is not awaited
		})
		for _, got := range tokens {
			want := provisioner.TokenSummary{TokenInfo: provisioner.TokenInfo{ID: f.TokenID(unlimited)}}
			if got.ID == f.TokenID(limited) {
				want = provisioner.TokenSummary{TokenInfo: provisioner.TokenInfo{ID: f.TokenID(limited), Uses: 3}, Used: 3, Left: new(int)}
				if got.JTI != strings.Repeat("j", 128) || len(got.Identities) != 1 || got.Identities[0] != "web*.example.net" {
					t.Errorf("limited token = %+v", got)
				}
			}
			if got.ID != want.ID || got.Uses != want.Uses || got.Used != want.Used || (got.Left == nil) != (want.Left == nil) || got.Remaining() != want.Remaining() || got.SignerName == "" || got.Signer == "" ||
				got.IssuedAt.IsZero() || got.ExpiresAt.IsZero() || f.Clock.Now().Sub(got.FirstSeen) < 2*time.Hour {
				t.Errorf("token = %+v, want %+v", got, want)
			}
			b, err := json.Marshal(got)
			if err != nil || strings.Contains(string(b), testbed.Secret) || !strings.Contains(string(b), `"tid":`) {
				t.Errorf("as JSON: %s, %v", b, err)
			}
			if left := strings.Contains(string(b), `"left":0`); left != (got.Uses > 0) || left != strings.Contains(string(b), `"left"`) {
				t.Errorf("as JSON: %s, want left of the limited token only", b)
			}
		}
	}
	check()
	f.Stop()
	f.Start()
	f.Enroll(node(t, "web3.example.net", unlimited)) // noted once more, to no effect
	check()

	states := []string{}
	for _, u := range report(t, f, limited).UsedBy {
		states = append(states, fmt.Sprintf("%s %s %s", u.Identity, u.State, u.Source))
		if u.Key == "" || u.At.IsZero() {
			t.Errorf("use = %+v", u)
		}
	}
	a, b := fmt.Sprintf("web0%d.example.net enrolled 192.0.2.7", len(limited)), fmt.Sprintf("web1%d.example.net enrolled 192.0.2.7", len(limited))
	if want := []string{a, b, "web9.example.net claimed 192.0.2.1"}; !slices.Equal(states, want) {
		t.Errorf("uses = %q, want %q", states, want)
	}
	got := report(t, f, unlimited)
	if len(got.UsedBy) != 3 || got.Uses != 0 || got.Left != nil || got.More || got.UsedBy[0].State != provisioner.UseEnrolled || got.UsedBy[0].Key == "" {
		t.Errorf("unlimited token = %+v", got)
	}
	if _, err := provisioners(t, f, 1)[0].Token(f.Context(), f.TokenID(unused)); !errors.Is(err, provisioner.ErrUnknownToken) {
		t.Errorf("a token that nobody used = %v, want %v", err, provisioner.ErrUnknownToken)
	}
	f.Check()
}
