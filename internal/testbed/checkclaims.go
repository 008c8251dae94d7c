package testbed

import (
	"cmp"
	"maps"
	"slices"

	"muster/provisioner/trust"

	"muster/jwt"
	"muster/provisioner"
)

// Reasons for which a certificate costs a use of a limited token.
var spending = []provisioner.Reason{provisioner.ReasonNew, provisioner.ReasonGrant, provisioner.ReasonOneTimeToken}

// certified holds, by token, each key with a certificate, and its identity.
type certified map[jwt.TokenID]map[string]bool

func (c certified) revision(r *provisioner.Record) {
	if !slices.Contains(spending, r.Decision.Reason) {
		return
	}
	offered := cmp.Or(r.Next, r.Current)
	if offered == nil || r.Token == "" {
		return
	}
	if c[r.Token] == nil {
		c[r.Token] = map[string]bool{}
	}
	c[r.Token][offered.KeyHash+" "+string(r.Identity)] = true
}

// claims counts the uses of each limited token in its log, and compares them with the certificates on record.
func (c *checker) claims() {
	c.f.tokens.mu.Lock()
	limits := maps.Clone(c.f.limited)
	c.f.tokens.mu.Unlock()
	held := map[jwt.TokenID]map[string]map[string]bool{} // by token, key and identity: attempts
	err := c.f.daemon.Store().AllClaims(c.f.Context(),
		func(tid jwt.TokenID, e *trust.ClaimEntry, at trust.Revision) error {
			h := held[tid]
			if (h == nil) != (e.Token != nil) {
				c.bad("claims of token %s at %d: describes the token: %v, first entry: %v", tid, at, e.Token != nil,
					h == nil)
			}
			if h == nil {
				h = map[string]map[string]bool{}
				held[tid] = h
				if limits[tid] == 0 && e.Token != nil {
					limits[tid] = e.Token.Uses
				}
			}
			for _, r := range e.Releases {
				holder := r.Key + " " + string(r.Identity)
				delete(h[holder], r.Attempt)
				if r.All || len(h[holder]) == 0 {
					delete(h, holder)
				}
			}
			for _, claim := range e.Claims {
				holder := claim.Key + " " + string(claim.Identity)
				if h[holder] == nil {
					h[holder] = map[string]bool{}
				}
				if h[holder][claim.Attempt] {
					c.bad("claims of token %s at %d: attempt %s claims twice", tid, at, claim.Attempt)
				}
				h[holder][claim.Attempt] = true
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
		for holder := range c.certified[tid] {
			if len(held[tid][holder]) == 0 {
				c.bad("token %s: %s has a certificate, but holds no use", tid, holder)
			}
		}
	}
}
