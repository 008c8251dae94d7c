package testbed

import (
	"maps"
	"slices"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// spending are the grounds on which a certificate costs a use of a limited
// token.
var spending = []provisioner.Reason{provisioner.ReasonNew, provisioner.ReasonGrant, provisioner.ReasonOneTimeToken}

// certified is what records say of limited tokens: the keys that got a
// certificate from each, by the identity that they got it for.
type certified map[jwt.TokenID]map[string]bool

// revision takes a revision of a record into account.
func (c certified) revision(r *provisioner.Record) {
	if !slices.Contains(spending, r.Decision.Reason) {
		return
	}
	offered := r.Next
	if offered == nil {
		offered = r.Current
	}
	if offered == nil || r.Token == "" {
		return
	}
	if c[r.Token] == nil {
		c[r.Token] = map[string]bool{}
	}
	c[r.Token][offered.KeyHash+" "+string(r.Identity)] = true
}

// claims counts the uses of every limited token anew, from its log alone, and
// compares them with the certificates on record.
func (c *checker) claims() {
	limits := c.f.limitedTokens()
	held := map[jwt.TokenID]map[string]map[string]bool{} // by token, key and identity: attempts
	err := c.f.daemon.Store().AllClaims(c.f.Context(), 0, func(tid jwt.TokenID, e *provisioner.ClaimEntry, at provisioner.Revision) error {
		h := held[tid]
		if (h == nil) != (e.Token != nil) {
			c.bad("claims of token %s at %d: says of which token: %v, is the first: %v", tid, at, e.Token != nil, h == nil)
		}
		if h == nil {
			h = map[string]map[string]bool{}
			held[tid] = h
			if limits[tid] == 0 && e.Token != nil {
				limits[tid] = e.Token.Uses
			}
		}
		for _, r := range e.Releases {
			who := r.Key + " " + string(r.Identity)
			delete(h[who], r.Attempt)
			if r.All || len(h[who]) == 0 {
				delete(h, who)
			}
		}
		for _, claim := range e.Claims {
			who := claim.Key + " " + string(claim.Identity)
			if h[who] == nil {
				h[who] = map[string]bool{}
			}
			if h[who][claim.Attempt] {
				c.bad("claims of token %s at %d: attempt %s claims twice", tid, at, claim.Attempt)
			}
			h[who][claim.Attempt] = true
		}
		if len(h) > limits[tid] {
			c.bad("claims of token %s at %d: %d uses are held, the limit is %d", tid, at, len(h), limits[tid])
		}
		return nil
	})
	if err != nil {
		c.bad("%v", err)
	}
	for _, tid := range slices.Sorted(maps.Keys(limits)) {
		if got := len(c.certified[tid]); got > limits[tid] {
			c.bad("token %s: %d keys have certificates, the limit is %d", tid, got, limits[tid])
		}
		for who := range c.certified[tid] {
			if len(held[tid][who]) == 0 {
				c.bad("token %s: %s has a certificate and holds no use", tid, who)
			}
		}
	}
}

// limitedToken remembers a token that the test has signed: if nobody writes
// claims for it, nothing on record says that it is limited. Tokens that are not
// good, of tomorrow or of last year, are counted when they are used.
func (f *Fleet) limitedToken(text string) {
	f.t.Helper()
	if v, err := f.verify(text); err == nil && v.Limits.Uses > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.limited == nil {
			f.limited = map[jwt.TokenID]int{}
		}
		f.limited[v.ID] = max(f.limited[v.ID], v.Limits.Uses)
	}
}

// verify verifies a token of this fleet.
func (f *Fleet) verify(text string) (*jwt.Verified, error) {
	f.t.Helper()
	v, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: []jwt.Signer{{Name: "test", Key: f.signer.Public()}}, Now: f.Clock.Now})
	if err != nil {
		f.t.Fatal(err)
	}
	return v.Verify(text)
}

// limitedTokens returns the uses of the limited tokens that the test has signed.
func (f *Fleet) limitedTokens() map[jwt.TokenID]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	limits := map[jwt.TokenID]int{}
	maps.Copy(limits, f.limited)
	return limits
}

// TokenID returns the id under which a token of this fleet is counted.
func (f *Fleet) TokenID(text string) jwt.TokenID {
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
