package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/orders"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

func (a *attempt) checkApproved(ctx context.Context) error {
	if r := a.record; a.reason == ReasonReplay && r.Approval != nil && r.Approval.KeyHash == a.csr.KeyHash {
		return nil
	}
	if answer := a.Provisioner.approval(a.identity, a.csr.KeyHash, a.record, a.reason); answer != nil {
		a.approval = answer
		return nil
	}
	if a.cfg.Autosign == nil || a.logs.InRecovery() != nil || a.record.Awaits() {
		return refuse(wire.CodeApprovalPending, policyReasons(a.decision))
	}
	if a.unsigned = a.cfg.Autosign(ctx, a.identity, a.source.Key(), a.request.CSR); a.unsigned != nil {
		return refuse(wire.CodeApprovalPending, errors.Join(policyReasons(a.decision), a.unsigned))
	}
	a.approval = &orders.Answer{ID: wire.NewID(), Cause: trust.Cause{By: AutosignBy}}
	return nil
}

func (p *Provisioner) approval(id wire.Identity, keyHash string, r *Record, reason Reason) *orders.Answer {
	answer, at := p.logs.Answers.Of(id, keyHash)
	if !p.logs.NewestRecovery().Voids(at) && p.approvalCounts(answer, r, reason) {
		return answer
	}
	return nil
}

// AutosignBy is recorded as the author of autosign's approvals.
const AutosignBy = "autosign"

// A spent approval still admits repeated requests of its key. Approvals older than the spent one are void.
func (r *Record) admittedBy(a *orders.Answer, reason Reason, now time.Time) bool {
	if a == nil || a.Verdict != orders.VerdictApprove {
		return false
	}
	if r != nil && r.Approval != nil {
		if r.Approval.ID == a.ID {
			return reason == ReasonReplay
		}
		if !a.At.After(r.Approval.At) {
			return false
		}
	}
	return a.Open(now)
}

// checkRejected refuses requests only; a connection to the fleet is ended by a revocation.
func (a *proof) checkRejected() error {
	if a.csr == nil {
		return nil
	}
	by := a.logs.Answers.Rejection(a.identity, a.csr.KeyHash)
	if by == nil {
		return nil
	}
	return refuse(wire.CodeRejected, fmt.Errorf("rejected %s", by.Source()))
}

func (a *proof) checkPaused() error {
	s := a.logs.Pauses.About(a.renewal, a.siteOf(a.source), a.token.Limits.Site)
	if s == nil {
		return nil
	}
	return refuse(wire.CodePaused, s.Because())
}

func (a *proof) checkFrozen() error {
	r := a.logs.FrozenBy(a.token.ID, a.token.IssuedAt)
	if r == nil {
		return nil
	}
	return refuse(wire.CodeTokenFrozen,
		fmt.Errorf("token %s has a limit and is older than the recovery that began at %s, so its remaining uses are "+
			"unknown; once they are known: muster token unfreeze %s --left N",
			a.token.ID, r.Began.Format(time.RFC3339), a.token.ID))
}

// AllowListChanged updates the alarm about an open allow-list.
func (p *Provisioner) AllowListChanged(ctx context.Context) { p.watcher.watchAllowsAll(ctx) }

func (w *watcher) watchAllowsAll(ctx context.Context) {
	w.cfg.Alarms.Keep(ctx, events.AlarmAllowsAll, func() error {
		a := w.logs.Allowances.AnyName(w.now())
		if a == nil {
			return nil
		}
		ends := ""
		if !a.ExpiresAt.IsZero() {
			ends = ", or wait until " + a.ExpiresAt.Format(time.RFC3339)
		}
		why := errAllowsAll
		if a.WithoutToken {
			why = errAllowsAnyone
		}
		return fmt.Errorf("%w; to close it: `muster allow remove '%s'`%s; %s added it at %s",
			why, a.Pattern, ends, a.By, a.At.Format(time.RFC3339))
	})
}

var (
	errAllowsAll    = errors.New("the allow-list admits every name, so any token holder can enroll under any name")
	errAllowsAnyone = errors.New("the allow-list admits every name without a token: anyone can enroll under any name")
)

// A grant given under an earlier owner does not count.
func (r *Record) grantedBy(g *orders.Grant, keyHash string, now time.Time) bool {
	if g == nil || g.ID == "" || g.Secret != "" || g.ID == r.Grant || !g.Open(now) ||
		g.KeyHash != "" && g.KeyHash != keyHash {
		return false
	}
	return g.Owned.Equal(r.OwnedSince) // compared for equality only, since clocks may differ
}
