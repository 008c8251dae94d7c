package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// maxAttempt exceeds natsapi.Config.Timeout and is far below operate.ReleaseAge.
const maxAttempt = 2 * time.Minute

var errStale = errors.New("the attempt took too long")

// claimUse claims one use of a limited token. If the process dies after it, the same key gets the same use again. Later
// rounds keep the claim.
func (a *attempt) claimUse(ctx context.Context) error {
	// The owner spends no use, and the record spends a secret.
	if a.token.Limits.Uses == 0 || !a.reason.changesHands() || a.oneTime {
		return nil
	}
	if a.claim == nil {
		if err := a.checkFrozen(); err != nil {
			return err
		}
		claim := &trust.TokenClaim{
			Key:      a.csr.KeyHash,
			Identity: a.identity,
			Attempt:  a.id,
			At:       a.now(),
			Source:   events.Cut(a.source.Address, trust.MaxSourceBytes),
		}
		info := trust.NewTokenInfo(a.token, claim.At)
		info.Uses = a.logs.UsesOf(info.ID, info.Uses)
		switch err := a.uses.Claim(ctx, info, claim); {
		case errors.Is(err, trust.ErrUsedUp):
			return refuse(wire.CodeTokenUsedUp, err)
		case err != nil:
			return refuse(StoreCode(err), err)
		}
		a.claim = claim
	}
	return a.checkClaim()
}

// checkClaim refuses old claims: after a process was suspended, an operator may have released its claim.
func (a *attempt) checkClaim() error {
	if a.claim == nil {
		return nil
	}
	// Abs: the clock may have been set back
	if age := a.now().Sub(a.claim.At); age.Abs() > maxAttempt {
		return refuse(wire.CodeUnavailable,
			fmt.Errorf("%w: claimed %v ago, limit %v", errStale, age.Truncate(time.Second), maxAttempt))
	}
	return nil
}

// undo returns the quota and the token's use, but only if certainly no record was written. Operators can release a
// spent use, but cannot take back a certificate.
func (a *attempt) undo(ctx context.Context) {
	if a.claim == nil && !a.quotaTaken {
		return
	}
	var err error
	if a.unsure {
		err = errors.New("the record may have been written")
	}
	if err == nil && a.quotaTaken {
		a.quotas.refund(a.token.ID, a.source.Address)
		a.quotaTaken = false
	}
	if a.claim == nil {
		return
	}
	if err == nil {
		err = a.uses.Release(ctx, trust.NewTokenInfo(a.token, a.claim.At), &trust.TokenRelease{
			Key:      a.claim.Key,
			Identity: a.claim.Identity,
			Attempt:  a.claim.Attempt,
			At:       a.now(),
		})
	}
	if err != nil {
		a.cfg.Log.WarnContext(ctx, "token use stays spent", "node", a.identity, "token_id", a.token.ID, "err", err)
	}
}

// publish is [records.publish] with a look at the claim before each write.
func (a *attempt) publish(ctx context.Context, next *Record) error {
	unsure := a.unsure
	err := a.records.publish(ctx, next, a.after, func() error {
		if err := a.checkClaim(); err != nil {
			return err
		}
		a.unsure = true
		return nil
	})
	if errors.Is(err, errNotWritten) {
		a.unsure = unsure
	}
	return err
}
