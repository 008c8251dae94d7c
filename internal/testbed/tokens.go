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

// tokens signs the fleet's tokens and remembers them for Check.
type tokens struct {
	t      testing.TB
	dir    string
	url    func() string
	clock  *Clock
	signer crypto.Signer

	mu      sync.Mutex
	signed  []string             // guarded by mu: the first maxTokens
	sealed  map[jwt.TokenID]bool // guarded by mu: tokens that ask for sealing
	limited map[jwt.TokenID]int  // guarded by mu: uses of limited tokens
}

func newTokens(t testing.TB, dir string, url func() string, clock *Clock) *tokens {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(dir, "signer-key.pem"))
	must(t, err)
	f := &tokens{t: t, dir: dir, url: url, clock: clock, sealed: map[jwt.TokenID]bool{}, limited: map[jwt.TokenID]int{}}
	f.signer, err = jwt.ParsePrivateKey(key, nil)
	must(t, err)
	return f
}

// Claims returns valid claims for this fleet.
func (f *tokens) Claims() jwt.Claims {
	now := f.clock.Now().UTC().Truncate(time.Second)
	c := jwt.Claims{
		Token: Secret, Brokers: f.url(), Default: true, Organization: "choria", Purpose: jwt.Purpose,
		Issuer:    "test",
		Subject:   jwt.Purpose,
		JTI:       jwt.NewJTI(),
		IssuedAt:  now,
		NotBefore: now,
		ExpiresAt: now.Add(24 * time.Hour),
	}
	return c
}

// Token signs Claims, changed by edit if that is not nil.
func (f *tokens) Token(edit func(*jwt.Claims)) string {
	f.t.Helper()
	c := f.Claims()
	if edit != nil {
		edit(&c)
	}
	text, err := jwt.Sign(f.signer, c)
	must(f.t, err)
	v, err := f.verify(text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.signed) < maxTokens {
		f.signed = append(f.signed, text)
	}
	// The limits of a token that is not valid now come from its log.
	if err == nil && v.Limits.Uses > 0 {
		f.limited[v.ID] = max(f.limited[v.ID], v.Limits.Uses)
	}
	if err == nil && v.Limits.Seal != "" {
		f.sealed[v.ID] = true
	}
	return text
}

// Seal is an edit for [tokens.Token] that asks for sealing with the newest seal key.
func (f *tokens) Seal(c *jwt.Claims) {
	f.t.Helper()
	l, err := c.Limits()
	must(f.t, err)
	l.Seal = f.SealKey().String()
	must(f.t, c.SetLimits(l))
}

// SealKey returns the key in the setup's seal.pub.
func (f *tokens) SealKey() seal.PublicKey {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.dir, "seal.pub"))
	must(f.t, err)
	key, err := seal.ParsePublicKey(strings.TrimSpace(string(b)))
	must(f.t, err)
	return key
}

func (f *tokens) verify(text string) (*jwt.Verified, error) {
	f.t.Helper()
	v, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: []jwt.Signer{{Name: "test", Key: f.signer.Public()}},
		Now: f.clock.Now})
	must(f.t, err)
	return v.Verify(text)
}

// TokenID returns the id of a token of this fleet.
func (f *tokens) TokenID(text string) jwt.TokenID {
	f.t.Helper()
	v, err := f.verify(text)
	must(f.t, err)
	return v.ID
}

// Limited is an edit for [tokens.Token] that sets limits.
func Limited(uses int, identities ...wire.Pattern) func(*jwt.Claims) {
	return func(c *jwt.Claims) {
		if err := c.SetLimits(jwt.Limits{Uses: uses, Identities: identities}); err != nil {
			panic(err) // a mistake of the test
		}
	}
}

// SealedNode returns a simulated node with a token that asks for sealing.
func (f *tokens) SealedNode(identity string) *simnode.Node {
	f.t.Helper()
	n, err := simnode.New(identity, f.Token(f.Seal))
	must(f.t, err)
	return n
}

func (f *tokens) Session() *seal.Session {
	f.t.Helper()
	s, err := seal.NewSession(f.SealKey(), wire.Secret(f.Token(f.Seal)))
	must(f.t, err)
	return s
}

// Node returns a simulated node with a valid token.
func (f *tokens) Node(identity string) *simnode.Node {
	f.t.Helper()
	n, err := simnode.New(identity, f.Token(nil))
	must(f.t, err)
	n.Facts = json.RawMessage(`{"private":"` + Fact + `"}`)
	return n
}

// Nodes returns n simulated nodes that share a valid token.
func (f *tokens) Nodes(n int) []*simnode.Node {
	f.t.Helper()
	token := f.Token(nil)
	nodes := make([]*simnode.Node, n)
	for i := range nodes {
		var err error
		nodes[i], err = simnode.New(fmt.Sprintf("node%d.example.net", i), token)
		must(f.t, err)
	}
	return nodes
}
