package provisioner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/jwt"
)

// place is where an entry of a journal was in the store.
func (c *JournaledClaims) place() Revision { return c.At }

// same reports whether an entry of a journal is the one that the store has at its place.
func (c *JournaledClaims) same(tid jwt.TokenID, e *ClaimEntry, at Revision) bool {
	if c.Token != tid || c.At != at {
		return false
	}
	journaled, err := json.Marshal(c.Entry)
	stored, err2 := json.Marshal(e)
	return errors.Join(err, err2) == nil && bytes.Equal(journaled, stored)
}

func (s ClaimSum) place() Revision { return s.At }

// same is that of the entry that s stands for.
func (s ClaimSum) same(tid jwt.TokenID, e *ClaimEntry, at Revision) bool {
	return s == (&JournaledClaims{Token: tid, At: at, Entry: e}).Sum()
}

// A journaled is an entry of a journal, or what stands for it.
type journaled interface {
	place() Revision
	same(tid jwt.TokenID, e *ClaimEntry, at Revision) bool
}

// displaced calls each for the entries, which are in the order of the store, that are not
// at their places there, and stops at the first error of each.
func displaced[E journaled](ctx context.Context, log ClaimLog, entries []E, each func(E) error) error {
	if len(entries) == 0 {
		return nil
	}
	err := log.AllClaims(ctx, entries[0].place()-1, func(tid jwt.TokenID, e *ClaimEntry, at Revision) error {
		for len(entries) > 0 && entries[0].place() <= at {
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
// journal were: it was put back, and others have written to it since. Older ones are
// looked at by [Provisioner.evenOlderClaims], since a start is to read no more than it has to.
func (p *Provisioner) overwritten(ctx context.Context) (bool, error) {
	return anyDisplaced(ctx, p.cfg.Store, p.cfg.Journal.ClaimsLately())
}

// anyDisplaced reports whether there are entries for which displaced would call each.
func anyDisplaced[E journaled](ctx context.Context, log ClaimLog, entries []E) (bool, error) {
	err := displaced(ctx, log, entries, func(E) error { return errOverwritten })
	if errors.Is(err, errOverwritten) {
		return true, nil
	}
	return false, err
}

// evenOlderClaims appends what is displaced of all that the journal had at the start, once,
// while others are served: that the newest are in their places says nothing of those before.
// Whoever put them there had them in a journal, too, and nothing of what only
// we had. So has a store that was put back while we ran, and has had many claims since.
//
// An entry takes 13 µs (measured, on a busy machine): 13 s for a million, which have 16 MB until
// then. Once a store was put back, that is found at each start, and all that the journal has is in memory
// for a moment; nothing is appended twice.
func (p *Provisioner) evenOlderClaims(ctx context.Context) error {
	if p.cfg.Journal == nil {
		return nil
	}
	sums := p.cfg.Journal.ClaimSums()
	if len(sums) <= len(p.cfg.Journal.ClaimsLately()) {
		return nil // all of them were looked at
	}
	for {
		missed, err := anyDisplaced(ctx, p.cfg.Store, sums)
		if err == nil && missed {
			err = p.appendDisplaced(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		p.cfg.Log.WarnContext(ctx, "claims of the journal and the store not compared yet", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(evenOlderAgain):
		}
	}
}

// evenOlderAgain is when claims are compared again that could not be; chosen.
const evenOlderAgain = 30 * time.Second

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
