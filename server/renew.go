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

// backdate is how far before its issue a certificate of ours begins (DESIGN.md):
// five minutes that are no part of its life.
const backdate = 5 * time.Minute

// maxRenewalWait bounds the wait between two attempts to renew: a third of the
// usual life of 30 days leaves room for 240 of them. mostRenewals is how many a
// machine whose clock is ahead, to which each certificate is due for its renewal at once, makes in a
// certificate's life at most; a provisioner refuses more than 64 that have not expired.
const (
	maxRenewalWait = time.Hour
	mostRenewals   = 24
)

// A renewal is when and how to renew the certificate in force.
//
// At two thirds of its certificate's life a node in normal mode stages a new
// key, asks for a certificate for it over its connection to the fleet, and
// switches to what it gets as it does when it enrolls. It then connects with the
// new certificate and confirms from there, so what is confirmed is known to
// work. An agent that finds another key staged than the one in force goes on
// with the same request. If the old certificate ends first, the node enrolls
// with the staged key and the word of the key in force.
//
// A reconfiguration is the same with the key in force.
type renewal struct {
	duty
	at   time.Time // by the node's clock
	due  time.Time // by the process's clock, or then: a machine's clock may be set back
	next time.Time // not before it
	wait *backoff

	// returning: the certificate is not on record, and the broker takes nothing but renewals.
	returning bool

	nextConfiguration time.Time
	configurationWait *backoff
}

// renewAt returns when a certificate is renewed: from two thirds of its life on,
// after part, in [0,1), of another twelfth, so that machines that were enrolled
// together do not renew together.
func renewAt(leaf *x509.Certificate, part float64) time.Time {
	start, life := lifeOf(leaf)
	return start.Add(life*2/3 + time.Duration(part*float64(life/12)))
}

// lifeOf returns when a certificate was issued and how long it then had.
func lifeOf(leaf *x509.Certificate) (time.Time, time.Duration) {
	start := leaf.NotBefore
	if leaf.NotAfter.Sub(start) > backdate {
		start = start.Add(backdate)
	}
	return start, leaf.NotAfter.Sub(start)
}

// newRenewal sets when the certificate in force is renewed: at once if an agent
// before this one had begun to.
func newRenewal(d duty) *renewal {
	leaf := d.creds.Leaf()
	_, life := lifeOf(leaf)
	r := &renewal{duty: d, at: renewAt(leaf, d.cfg.hooks.random()), configurationWait: d.newBackoff()}
	r.wait = d.newBackoff()
	r.wait.max = max(r.wait.max, min(maxRenewalWait, life/72))
	r.due = time.Now().Add(r.at.Sub(d.clock.at(leaf.NotBefore)))
	if d.sets.renewing(d.creds.Key) {
		r.at = time.Time{}
	}
	return r
}

// renewalDue reports whether it is time to try. A certificate that is over is
// not renewed: it is another mode's turn.
func (r *renewal) renewalDue() bool {
	leaf, now := r.creds.Leaf(), time.Now()
	at := r.clock.at(leaf.NotBefore)
	due := !at.Before(r.at) || !now.Before(r.due)
	return due && at.Before(leaf.NotAfter) && r.mayTry()
}

// mayTry reports whether the wait after the last try is over.
func (r *renewal) mayTry() bool {
	now := time.Now()
	return !now.Before(r.next) && (r.returning || !now.Before(r.renewNot))
}

// reconfigureDue reports whether it is time to ask for the configuration.
func (r *renewal) reconfigureDue() bool {
	return r.orders.Doing(wire.VerbReconfigure) && !time.Now().Before(r.nextConfiguration)
}

// renew tries to renew once. If that succeeds, the files in force are new ones,
// which asks for another look and a new connection. If not, the node works on
// with what it has, and the next attempt is after a wait: however long it is
// told to wait, it asks again while that can help.
func (r *renewal) renew(ctx context.Context, conn *link.Conn) {
	err := r.ask(ctx, conn, true)
	if err == nil {
		r.next = time.Now().Add(r.wait.max) // files that cannot be used would bring another with each look
		r.notices.solved(msgRenewal)
		return
	}
	leaf := r.creds.Leaf()
	wait := r.wait.after(err)
	wait = min(wait, max(leaf.NotAfter.Sub(r.clock.at(leaf.NotBefore))/2, r.cfg.BackoffMin))
	r.next = time.Now().Add(wait)
	r.failed(ctx, msgRenewal, err, wait)
}

// reconfigure asks once for the configuration as it is decided now. After a
// refusal that will not change by itself the order is over.
func (r *renewal) reconfigure(ctx context.Context, conn *link.Conn) {
	err := r.ask(ctx, conn, false)
	if err == nil {
		r.notices.solved(msgReconfigure)
		return
	}
	wait := r.configurationWait.after(err)
	r.nextConfiguration = time.Now().Add(wait)
	var refused link.Refusal
	if errors.As(err, &refused) && !wire.MeaningOf(refused.Code).Retry {
		r.obeyed(ctx, wire.VerbReconfigure)
	}
	r.failed(ctx, msgReconfigure, err, wait)
}

func (r *renewal) failed(ctx context.Context, message string, err error, wait time.Duration) {
	if ctx.Err() == nil {
		r.attemptFailed(ctx, message, link.Explain(err, fleetPeer), wait, "node", r.identity, "serial", r.creds.Serial)
	}
}

// ask asks for a certificate and a configuration, with a key that is not the one
// in force if fresh is set, and puts them in force. For the key in force the
// certificate is the same one.
func (r *renewal) ask(ctx context.Context, conn *link.Conn, fresh bool) error {
	r.begun = r.cfg.Now()
	st, err := r.sets.openStage(ctx, r.identity, fresh)
	if err != nil {
		return fmt.Errorf("prepare key: %w", err)
	}
	facts, err := r.facts(ctx, r.view)
	if err != nil {
		return err
	}
	request := wire.RenewRequest{
		ID:       wire.NewID(),
		Identity: string(r.identity),
		CSR:      st.csr,
		Facts:    facts,
		Agent:    r.agentName(),
		Boot:     r.boot,
	}
	word, err := wire.Vouch(r.creds.Key, request.ID, request.Identity, request.CSR)
	if err != nil {
		return err
	}
	request.Continuity = *word
	if r.returning {
		request.Certificate = r.creds.Leaf().Raw
	}
	reply, err := conn.Request(ctx, wire.SubjectRenew, request.ID, &request)
	if err != nil {
		return err
	}
	if reply.Refusal != nil {
		refused := link.Refusal{Refusal: reply.Refusal}
		return advice.New(refused, refused.Remedy())
	}
	r.cfg.hooks.steps("renewal answered")
	want := expectation{
		identity:  r.identity,
		key:       st.key,
		authority: trust.Authority{Known: r.creds.Roots},
		now:       r.clock.at,
		named:     r.named,
		renewed:   fresh,
	}
	if r.token != nil {
		want.authority.Pin = r.token.Limits.CA
	}
	if _, err := r.take(ctx, conn, reply, want); err != nil {
		return err
	}
	r.obeyed(ctx, wire.VerbReconfigure)
	return nil
}
