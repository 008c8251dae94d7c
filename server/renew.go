package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
	"muster/server/trust"
)

// At maxRenewalWait, a third of the usual life of 30 days allows 240 attempts. If the machine's clock is ahead, every
// new certificate is due at once: mostRenewals bounds the renewals in a certificate's life, and a provisioner refuses
// more than 64 unexpired certificates.
const (
	maxRenewalWait = time.Hour
	mostRenewals   = 24
)

// A renewal replaces the certificate in force.
//
// At two thirds of its life the agent stages a new key, asks for a certificate over its connection, and switches to the
// new set. It confirms over a connection with the new certificate, which is so known to work. A restarted agent
// continues with the staged key. If the old certificate expires first, the node enrolls with the staged key and a
// signature by the key in force.
//
// A reconfiguration does the same with the key in force.
type renewal struct {
	nodeContext
	at   time.Time
	due  time.Time // by the process's monotonic clock: the machine's clock may be set back
	next time.Time
	wait *link.Backoff

	repair bool // files on disk were lost

	// unrecorded: the certificate is not on record, and the broker admits only renewals.
	unrecorded bool

	nextConfiguration time.Time
	configurationWait *link.Backoff
}

// renewAt returns when to renew: after two thirds of the life, and up to a twelfth later as part goes from 0 to 1, to
// spread nodes that enrolled together.
func renewAt(leaf *x509.Certificate, part float64) time.Time {
	start, life := trust.LifeOf(leaf)
	return start.Add(life*2/3 + time.Duration(part*float64(life/12)))
}

// newRenewal schedules the renewal, at once if a former agent began one.
func newRenewal(d nodeContext) *renewal {
	leaf := d.creds.Leaf()
	_, life := trust.LifeOf(leaf)
	r := &renewal{nodeContext: d, at: renewAt(leaf, d.cfg.hooks.random()), configurationWait: d.newBackoff()}
	r.wait = d.newBackoff()
	r.wait.Max = max(r.wait.Max, min(maxRenewalWait, life/72))
	r.due = time.Now().Add(r.at.Sub(d.clock.at(leaf.NotBefore)))
	if d.sets.renewing(d.creds.Key) {
		r.at = time.Time{}
	}
	return r
}

// renewalDue is also true if the certificate has expired by this machine's clock: the broker still admits it.
func (r *renewal) renewalDue() bool {
	if !r.repair && r.clock.at(r.creds.Leaf().NotBefore).Before(r.at) && time.Now().Before(r.due) {
		r.faults.set(faultRenewal, nil) // the clock was corrected, or the files are back
		return false
	}
	return r.mayTry()
}

func (r *renewal) mayTry() bool {
	now := time.Now()
	return !now.Before(r.next) && (r.unrecorded || !now.Before(r.noRenewalBefore))
}

func (r *renewal) reconfigureDue() bool {
	return (r.orders.IsOpen(wire.VerbReconfigure) || r.factsDue) && !time.Now().Before(r.nextConfiguration)
}

// renew tries to renew once. A success changes the files, so the agent connects again. The wait after a failure is at
// most half of the remaining life.
func (r *renewal) renew(ctx context.Context, conn *link.Conn) {
	err := r.request(ctx, conn, true)
	if err == nil {
		r.next = time.Now().Add(r.wait.Max) // even if the new files cannot be used
		r.problems.solved(msgRenewal)
		r.repair = false
		return
	}
	r.faults.set(faultRenewal, r.renewalFault(err))
	leaf := r.creds.Leaf()
	wait := r.wait.AfterError(err)
	wait = min(wait, max(leaf.NotAfter.Sub(r.clock.at(leaf.NotBefore))/2, r.cfg.BackoffMin))
	r.next = time.Now().Add(wait)
	r.failed(ctx, msgRenewal, err, wait)
}

// reconfigure requests the current configuration once. A final refusal ends the order.
func (r *renewal) reconfigure(ctx context.Context, conn *link.Conn) {
	err := r.request(ctx, conn, false)
	if err == nil {
		r.problems.solved(msgReconfigure)
		return
	}
	wait := r.configurationWait.AfterError(err)
	r.nextConfiguration = time.Now().Add(wait)
	if refused, ok := errors.AsType[link.Refusal](err); ok && !wire.MeaningOf(refused.Code).Retry {
		r.ordersDone(ctx, wire.VerbReconfigure)
		r.factsDue = false
	}
	r.failed(ctx, msgReconfigure, err, wait)
}

func (r *renewal) failed(ctx context.Context, message string, err error, wait time.Duration) {
	if ctx.Err() == nil {
		r.attemptFailed(ctx, message, link.Explain(err, fleetPeer), wait, "node", r.identity, "serial", r.creds.Serial)
	}
}

// request gets a certificate and configuration and puts them in force. If fresh is set, the certificate is new, for a
// new key; otherwise it is the same.
func (r *renewal) request(ctx context.Context, conn *link.Conn, fresh bool) error {
	r.attemptStart = r.cfg.Now()
	st, err := r.sets.openStage(ctx, r.identity, fresh)
	if err != nil {
		return fmt.Errorf("prepare key: %w", err)
	}
	facts, problem, err := r.facts(ctx, r.inspection)
	if err != nil {
		return err
	}
	request := wire.RenewRequest{
		ID:         wire.NewID(),
		Identity:   string(r.identity),
		CSR:        st.csr,
		Facts:      facts,
		FactsError: problem,
		Agent:      r.agentName(),
		Boot:       r.boot,
	}
	word, err := wire.SignContinuity(r.creds.Key, request.ID, request.Identity, request.CSR)
	if err != nil {
		return err
	}
	request.Continuity = *word
	if r.unrecorded {
		request.Certificate = r.creds.Leaf().Raw
	}
	reply, err := conn.Request(ctx, wire.SubjectRenew, request.ID, &request)
	if err != nil {
		return link.Unanswered{Err: err}
	}
	if reply.Refusal != nil {
		refused := link.Refusal{Refusal: reply.Refusal}
		return advice.New(refused, refused.Remedy())
	}
	r.cfg.hooks.steps("renewal answered")
	want := expectation{
		identity:       r.identity,
		key:            st.key,
		authority:      trust.Authority{Known: r.creds.Roots},
		now:            r.clock.at,
		identityInConf: r.identityInConf,
		renewed:        fresh,
		facts:          facts,
		factsError:     problem,
	}
	if r.token != nil {
		want.authority.Pin = r.token.Limits.CA
	}
	if _, err := r.applyReply(ctx, conn, reply, want); err != nil {
		return err
	}
	r.factsDue = false
	r.ordersDone(ctx, wire.VerbReconfigure)
	return nil
}
