package provisioner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"muster/jwt"
)

// same reports whether an entry of a journal is the one that the store has at its place.
func (c *JournaledClaims) same(tid jwt.TokenID, e *ClaimEntry, at Revision) bool {
	if c.Token != tid || c.At != at {
		return false
	}
	journaled, err := json.Marshal(c.Entry)
	stored, err2 := json.Marshal(e)
	return errors.Join(err, err2) == nil && bytes.Equal(journaled, stored)
}

// displaced calls each for the entries, which are in the order of the store, that are not
// at their places there, and stops at the first error of each.
func displaced(ctx context.Context, log ClaimLog, entries []*JournaledClaims, each func(*JournaledClaims) error) error {
	if len(entries) == 0 {
		return nil
	}
	err := log.AllClaims(ctx, entries[0].At-1, func(tid jwt.TokenID, e *ClaimEntry, at Revision) error {
		for len(entries) > 0 && entries[0].At <= at {
			c := entries[0]
			if entries = entries[1:]; c.same(tid, e, at) {
				continue
			}
			if err := each(c); err != nil {
				return err
			}
		}
		if len(entries) == 0 {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	for _, c := range entries { // beyond the store's end
		if err := each(c); err != nil {
			return err
		}
	}
	return nil
}

// overwritten reports whether the store has something else where the newest entries of the
// journal were: it was put back, and others have written to it since. Older ones are not
// looked at, since a start is to read no more than it has to.
func (p *Provisioner) overwritten(ctx context.Context) (bool, error) {
	err := displaced(ctx, p.cfg.Store, p.cfg.Journal.ClaimsLately(), func(*JournaledClaims) error { return errOverwritten })
	if errors.Is(err, errOverwritten) {
		return true, nil
	}
	return false, err
}

var errOverwritten = errors.New("the store has other claims than the journal")

// appendDisplaced appends the claims of the journal that are neither at their places nor
// anywhere else in the logs of their tokens. A store that was put back gets what each
// provisioner has journaled when it starts: the first one cannot know what others have,
// and has kept those places with nothing, or given them away.
//
// What was released after it by the journal's word is not claimed again, and releases are
// not repeated: an operator's would take back what was claimed since. Whoever dies in here,
// or is overtaken, begins anew: what is in a log is found there.
func (p *Provisioner) appendDisplaced(ctx context.Context) error {
	journaled, err := p.cfg.Journal.ClaimsAfter(0)
	if err != nil {
		return err
	}
	claims, tokens := make(map[jwt.TokenID][]TokenClaim), make(map[jwt.TokenID]*TokenInfo)
	for _, c := range journaled {
		if c.Entry.Token != nil {
			tokens[c.Token] = c.Entry.Token
		}
	}
	err = displaced(ctx, p.cfg.Store, journaled, func(c *JournaledClaims) error {
		held := claims[c.Token]
		for _, r := range c.Entry.Releases {
			held = slices.DeleteFunc(held, func(t TokenClaim) bool {
				return t.Key == r.Key && t.Identity == r.Identity && (r.All || t.Attempt == r.Attempt)
			})
		}
		claims[c.Token] = append(held, c.Entry.Claims...)
		return nil
	})
	if err != nil {
		return err
	}
	for tid, held := range claims {
		if err := p.claimAgain(ctx, tid, tokens[tid], held); err != nil {
			return fmt.Errorf("claims of token %s: %w", tid, err)
		}
	}
	return nil
}

// claimAgain appends those claims whose attempts are not in the log of the token.
func (p *Provisioner) claimAgain(ctx context.Context, tid jwt.TokenID, token *TokenInfo, claims []TokenClaim) error {
	for range maxRounds {
		there, tail := make(map[string]bool), Revision(0)
		err := p.cfg.Store.Claims(ctx, tid, 0, func(e *ClaimEntry, at Revision) error {
			for _, c := range e.Claims {
				there[c.Attempt] = true
			}
			tail = at
			return nil
		})
		if err != nil {
			return err
		}
		claims = slices.DeleteFunc(claims, func(c TokenClaim) bool { return there[c.Attempt] })
		for len(claims) > 0 && err == nil {
			e := &ClaimEntry{Schema: ClaimSchema, Claims: claims[:min(len(claims), maxBatch)]}
			if tail == 0 {
				e.Token = token
			}
			if tail, err = p.cfg.Store.AppendClaims(ctx, tid, e, tail); err == nil {
				p.cfg.Log.WarnContext(ctx, "store has forgotten claims that the journal has, they are appended again", "token_id", tid, "revision", uint64(tail), "entries", len(e.Claims))
				claims = claims[len(e.Claims):]
			}
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return ErrConflict
}
