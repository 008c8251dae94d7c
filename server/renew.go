package server

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/wire"
)

// Renewing a certificate.
//
// At two thirds of its certificate's life a node in normal mode makes a new key
// in the staging directory, asks for a certificate for it over its connection to
// the fleet, and switches to what it gets as it does when it enrolls (apply.go).
// It then connects with the new certificate and confirms from there, so what is
// confirmed is known to work. Until then the old certificate stays live.
//
// Every step may be the last. Key and request are on disk before the request is
// sent, and a stage with another key than the one in force is what tells the
// next agent that a renewal is under way: it repeats the same request at once,
// and is answered with the same certificate. After the switch the confirmation
// is pending, which settle looks after. If the old certificate ends first, the
// node enrolls with the staged key and the word of the key in force
// (continuity), which is enough wherever the renewal had got to.

// msgRenewal is logged once per change.
const msgRenewal = "certificate not renewed"

// backdate is how far before its issue a certificate of ours begins (DESIGN.md):
// five minutes that are no part of its life.
const backdate = 5 * time.Minute

// maxRenewalWait bounds the wait between two attempts to renew; chosen, a third
// of the usual life of 30 days leaves room for 240 of them.
const maxRenewalWait = time.Hour

// A renewal is when to renew the certificate in force.
type renewal struct {
	at   time.Time // by the node's clock; see nowFor
	due  time.Time // by the process's clock, or then: a machine's clock may be set back by weeks
	next deadline  // not before it
	wait *backoff
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

// doubtClock looks at a certificate that was just given out. One that is due for its
// renewal already says that the time by which it is is ahead: it would be renewed at
// once, and so would be each that follows. If it is the time that was saved, that is
// dropped. Else the next renewal waits, by a clock that nobody sets; a request repeated
// after weeks, which gets what it was given then, does so too.
func (s *Server) doubtClock(ctx context.Context, leaf *x509.Certificate) {
	due, own := renewAt(leaf, 0), s.cfg.Now()
	at := s.nowFor(leaf.NotBefore)
	if at.Before(due) {
		return
	}
	if own.Before(due) {
		s.cfg.Log.WarnContext(ctx, "saved time dropped, it was ahead of a fresh certificate", "saved", s.seen)
		s.setClock(ctx, own.UTC().Truncate(time.Second))
		return
	}
	_, life := lifeOf(leaf)
	wait := max(leaf.NotAfter.Sub(at)/2, life/mostRenewals)
	s.renewNot = time.Now().Add(wait)
	s.cfg.Log.WarnContext(ctx, "a certificate that was just given out is due for its renewal by this machine's clock", "until", leaf.NotAfter,
		"retry_in", rounded(wait), "remedy", fmt.Sprintf("the clock says %s: set it, if it is ahead", own.UTC().Format(time.RFC3339)))
}

// mostRenewals is how many a machine whose clock is ahead makes in a certificate's
// life at most; chosen, a provisioner refuses more than 64 that have not expired.
const mostRenewals = 24

// scheduleRenewal sets when the certificate in force is renewed: at once if an
// agent before this one had begun to.
func (n *duty) scheduleRenewal() {
	leaf := n.creds.leaf()
	_, life := lifeOf(leaf)
	n.renewal = renewal{at: renewAt(leaf, n.cfg.Rand()), wait: &backoff{
		min: n.cfg.BackoffMin, max: max(n.cfg.BackoffMax, min(maxRenewalWait, life/72)), random: n.cfg.Rand,
	}}
	if n.proven = leaf.NotBefore; n.proven.After(n.now()) {
		n.saw(n.proven) // and from now on time goes on from there
	}
	n.renewal.due = time.Now().Add(n.renewal.at.Sub(n.nowFor(leaf.NotBefore)))
	if n.renewalBegun() {
		n.renewal.at = time.Time{}
	}
}

// renewalBegun reports whether the stage holds a key for this node that is not
// the one in force.
func (n *duty) renewalBegun() bool {
	if !exists(n.at.inNext(markerFile)) {
		return false
	}
	key, err := readKey(n.at.inNext(keyFile))
	return err == nil && !samePublicKey(key.Public(), n.creds.key.Public())
}

// renewalDue reports whether it is time to try. A certificate that is over is
// not renewed: it is another mode's turn.
func (n *duty) renewalDue() bool {
	leaf := n.creds.leaf()
	at := n.nowFor(leaf.NotBefore)
	due := !at.Before(n.renewal.at) || !time.Now().Before(n.renewal.due)
	return due && at.Before(leaf.NotAfter) && n.come(n.renewal.next) && !time.Now().Before(n.renewNot)
}

// renew tries to renew once. If that succeeds, the files in force are new ones,
// which asks for another look and a new connection. If not, the node works on
// with what it has, and the next attempt is after a wait.
func (n *duty) renew(ctx context.Context, conn *connection) {
	serial, err := n.renewOver(ctx, conn, true)
	if err == nil {
		// Files that do not allow to go on with what they hold by now would have each look
		// at them bring another certificate.
		n.renewal.next = n.in(n.renewal.wait.max)
		n.once.solved(msgRenewal)
		n.cfg.Log.InfoContext(ctx, "certificate renewed", "node", n.identity, "serial", serial, "elapsed", n.elapsed())
		n.observe(Event{Kind: EventApplied, Serial: serial, Broker: conn.broker, Elapsed: n.elapsed()})
		return
	}
	wait := max(n.renewal.wait.next(), slowedBy(err))
	var refused refusal
	if errors.As(err, &refused) {
		wait = max(wait, refused.Wait())
		n.observe(Event{Kind: EventRefused, Code: refused.Code, Elapsed: n.elapsed()})
	} else if ctx.Err() == nil {
		n.observe(Event{Kind: EventFailed, Err: err, Elapsed: n.elapsed()})
	}
	// However long it is told to wait, it asks again while that can help.
	leaf := n.creds.leaf()
	wait = min(wait, max(leaf.NotAfter.Sub(n.nowFor(leaf.NotBefore))/2, n.cfg.BackoffMin))
	n.renewal.next = n.in(wait)
	if ctx.Err() == nil {
		n.once.problem(ctx, n.cfg.Log, slog.LevelWarn, msgRenewal, explain(err, peer{normal: true, broker: conn.broker}),
			"node", n.identity, "serial", n.creds.serial, "retry_in", rounded(wait))
	}
}

// renewOver renews over one connection, with a key that is not the one in force
// if fresh is set, and returns the serial of the certificate that is then in
// force. For the key in force that is the same one, unless it is time to renew.
func (n *duty) renewOver(ctx context.Context, conn *connection, fresh bool) (serial string, err error) {
	n.begun = n.cfg.Now()
	stage, err := n.stageFor(ctx, n.identity, fresh)
	if err != nil {
		return "", fmt.Errorf("prepare key: %w", err)
	}
	facts, err := n.facts(ctx, n.token, n.conf)
	n.awaited = "" // no wait of this mode ends early for it
	if err != nil {
		return "", err
	}
	request := wire.RenewRequest{ID: wire.NewID(), Identity: string(n.identity), CSR: stage.csr, Facts: facts, Agent: n.agentName(), Boot: n.boot}
	word, err := vouch(n.creds.key, request.ID, request.Identity, request.CSR)
	if err != nil {
		return "", err
	}
	request.Continuity = *word
	reply, err := n.request(ctx, conn, wire.SubjectRenew, request.ID, &request)
	switch {
	case err != nil:
		return "", err
	case reply.Refusal != nil:
		r := refusal{reply.Refusal}
		return "", &cause{what: r, remedy: r.remedy()}
	case reply.Enrolled == nil:
		return "", fmt.Errorf("%w: a confirmation, want a certificate", errReply)
	}
	n.step("renewal answered")
	want := expectation{identity: n.identity, key: stage.key, known: n.creds.trusted, now: n.nowFor, token: n.token, named: n.named}
	if n.token != nil {
		want.pin = n.token.limits.CA
	}
	set, creds, err := n.check(ctx, reply.Enrolled, want)
	if err != nil {
		err = n.complain(ctx, conn, stage.key, wordOn(n.identity, reply.Enrolled), err)
		return "", &cause{what: err, remedy: cmp.Or(remedyOf(err), "see the provisioner's log for this node")}
	}
	if err := n.apply(ctx, set); err != nil {
		_ = n.complain(ctx, conn, stage.key, set.pending, err) // it is this node's own to mend
		return "", fmt.Errorf("apply: %w", err)
	}
	n.obeyed(ctx, wire.VerbReconfigure)
	n.saveClock(ctx)
	return creds.serial, nil
}

// continuity returns the word of the key in force for a request by another
// key, nil if there is no such key, or it is the same: a node that was about to
// change its key when its certificate ended proves that it is still itself.
func (s *Server) continuity(r *wire.EnrollRequest, key crypto.Signer) (*wire.Continuity, error) {
	held, err := s.keyInForce(wire.Identity(r.Identity))
	if err != nil {
		return nil, fmt.Errorf("continuity: %w", err)
	}
	if held == nil || samePublicKey(held.Public(), key.Public()) {
		return nil, nil
	}
	return vouch(held, r.ID, r.Identity, r.CSR)
}

// vouch returns a key's word for the request with this id, identity and
// certificate request.
func vouch(key crypto.Signer, id, identity string, csr []byte) (*wire.Continuity, error) {
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("continuity: %w", err)
	}
	signature, err := wire.Sign(key, wire.ContinuityDigest(id, identity, csr))
	if err != nil {
		return nil, fmt.Errorf("continuity: %w", err)
	}
	return &wire.Continuity{PublicKey: spki, Signature: signature}, nil
}

// agentName is what the agent calls itself in requests, cut to the protocol's
// limit.
func (s *Server) agentName() string {
	name := "muster-server " + s.cfg.Version
	return name[:min(len(name), 128)]
}
