package testbed

import (
	"crypto"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/seal"
	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/jwt"
)

// tokens signs the tokens of a fleet and remembers what Check wants of them.
type tokens struct {
	t      testing.TB
	dir    string // of the setup
	url    func() string
	clock  *Clock
	signer crypto.Signer

	mu      sync.Mutex
	signed  []string             // guarded by mu: the first [maxTokens]
	sealed  map[jwt.TokenID]bool // guarded by mu: those that are to be sealed
	limited map[jwt.TokenID]int  // guarded by mu: uses of those that are limited
}

// newTokens returns what signs with the key that is in a setup.
func newTokens(t testing.TB, dir string, url func() string, clock *Clock) *tokens {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(dir, "signer-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	f := &tokens{t: t, dir: dir, url: url, clock: clock, sealed: map[jwt.TokenID]bool{}, limited: map[jwt.TokenID]int{}}
	if f.signer, err = jwt.ParsePrivateKey(key, nil); err != nil {
		t.Fatal(err)
	}
	return f
}

// Claims returns the claims of a good token of this fleet.
func (f *tokens) Claims() jwt.Claims {
	now := f.clock.Now().UTC().Truncate(time.Second)
	c := jwt.Claims{
		Token: Secret, Brokers: f.url(), Default: true, Organization: "choria", Purpose: jwt.Purpose,
		Issuer: "test", Subject: jwt.Purpose, JTI: jwt.NewJTI(), IssuedAt: now, NotBefore: now, ExpiresAt: now.Add(24 * time.Hour),
	}
	return c
}

// Token signs a good token of this fleet, changed by edit if that is not nil.
func (f *tokens) Token(edit func(*jwt.Claims)) string {
	f.t.Helper()
	c := f.Claims()
	if edit != nil {
		edit(&c)
	}
	text, err := jwt.Sign(f.signer, c)
	if err != nil {
		f.t.Fatal(err)
	}
	v, err := f.verify(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.signed) < maxTokens {
		f.signed = append(f.signed, text)
	}
	// A token that is not good, of tomorrow or of last year, is counted when it is used.
	if err == nil && v.Limits.Uses > 0 {
		f.limited[v.ID] = max(f.limited[v.ID], v.Limits.Uses)
	}
	if err == nil && v.Limits.Seal != "" {
		f.sealed[v.ID] = true
	}
	return text
}

// Seal has a token ask for sealed enrollment, with the fleet's newest seal key.
// It is for [tokens.Token], and keeps the other limits that the token has.
func (f *tokens) Seal(c *jwt.Claims) {
	f.t.Helper()
	l, err := c.Limits()
	if err != nil {
		f.t.Fatal(err)
	}
	l.Seal = f.SealKey().String()
	if err := c.SetLimits(l); err != nil {
		f.t.Fatal(err)
	}
}

// SealKey returns the public key in the setup's seal.pub.
func (f *tokens) SealKey() seal.PublicKey {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.dir, "seal.pub"))
	if err != nil {
		f.t.Fatal(err)
	}
	key, err := seal.ParsePublicKey(strings.TrimSpace(string(b)))
	if err != nil {
		f.t.Fatal(err)
	}
	return key
}

// verify verifies a token of this fleet.
func (f *tokens) verify(text string) (*jwt.Verified, error) {
	f.t.Helper()
	v, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: []jwt.Signer{{Name: "test", Key: f.signer.Public()}}, Now: f.clock.Now})
	if err != nil {
		f.t.Fatal(err)
	}
	return v.Verify(text)
}

// TokenID returns the id under which a token of this fleet is counted.
func (f *tokens) TokenID(text string) jwt.TokenID {
	f.t.Helper()
	v, err := f.verify(text)
	if err != nil {
		f.t.Fatal(err)
	}
	return v.ID
}

// Limited returns an edit of a token's claims that sets its limits.
func Limited(uses int, identities ...wire.Pattern) func(*jwt.Claims) {
	return func(c *jwt.Claims) {
		if err := c.SetLimits(jwt.Limits{Uses: uses, Identities: identities}); err != nil {
			panic(err) // a test's own mistake
		}
	}
}

// SealedNode returns a simulated node with a good token that asks for sealed
// enrollment.
func (f *tokens) SealedNode(identity string) *simnode.Node {
	f.t.Helper()
	n, err := simnode.New(identity, f.Token(f.Seal))
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

// Session returns a sealed session that has no connection yet.
func (f *tokens) Session() *seal.Session {
	f.t.Helper()
	s, err := seal.NewSession(f.SealKey(), wire.Secret(f.Token(f.Seal)))
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// Node returns a simulated node with a good token.
func (f *tokens) Node(identity string) *simnode.Node {
	f.t.Helper()
	n, err := simnode.New(identity, f.Token(nil))
	if err != nil {
		f.t.Fatal(err)
	}
	n.Facts = json.RawMessage(`{"private":"` + Fact + `"}`)
	return n
}

// Nodes returns so many simulated nodes, which share a good token.
func (f *tokens) Nodes(n int) []*simnode.Node {
	f.t.Helper()
	token := f.Token(nil)
	nodes := make([]*simnode.Node, n)
	for i := range nodes {
		var err error
		if nodes[i], err = simnode.New(fmt.Sprintf("node%d.example.net", i), token); err != nil {
			f.t.Fatal(err)
		}
	}
	return nodes
}
