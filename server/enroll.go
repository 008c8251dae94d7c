package server

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
	"muster/server/trust"
)

type enroller struct {
	*agent
	wait     *link.Backoff
	answered time.Time // time of the last answer by a provisioner, or the start
}

// run tries to enroll until the node is provisioned or its files require another mode. The error is errStopped.
func (e *enroller) run(ctx context.Context, id wire.Identity) (provisioned bool, err error) {
	e.attemptStart, e.answered, e.wait = e.cfg.Now(), time.Now(), e.newBackoff()
	for ctx.Err() == nil {
		v, err := e.state.inspect()
		if err != nil || v.mode != ModeProvisioning || v.identity != id {
			return false, nil
		}
		facts := watch(e.cfg.factsFile(v.token, v.conf))
		err = e.attempt(ctx, v)
		var refused link.Refusal
		message, other := msgFailed, msgRefused
		if errors.As(err, &refused) {
			e.answered = time.Now()
			message, other = msgRefused, msgFailed
		}
		switch {
		case err == nil:
			e.problems.solved(msgFailed, msgRefused)
			return true, nil
		case ctx.Err() != nil:
			return false, nil
		case refused.Refusal != nil && refused.Code == wire.CodeShutdown:
			e.cfg.Log.WarnContext(ctx, "agent stopped by a policy", "node", id, "code", refused.Code,
				"err", refused.Error(), "remedy", refused.Remedy())
			e.observe(Event{Kind: EventRefused, Code: refused.Code})
			return false, errStopped
		}
		pause := e.wait.AfterError(err)
		e.problems.solved(other)
		e.attemptFailed(ctx, message, err, pause, "node", id)
		if e.abandonReprovision(ctx, v, err) || e.state.retryCertificate() {
			return false, nil
		}
		e.waitFor(ctx, pause, v.watched, facts)
	}
	return false, nil
}

func (a *agent) attemptFailed(ctx context.Context, message string, err error, wait time.Duration, attrs ...any) {
	e := Event{Kind: EventFailed, Err: err}
	if refused, ok := errors.AsType[link.Refusal](err); ok {
		e.Kind, e.Code, e.Err = EventRefused, refused.Code, nil
		attrs = append(attrs, "code", refused.Code)
	}
	a.problems.problem(ctx, slog.LevelWarn, message, err, append(attrs, "retry_in", rounded(wait))...)
	a.observe(e)
}

// attempt tries the brokers in turn until a provisioner answers. If it returns nil, the new set is in force; its
// confirmation may be pending.
func (e *enroller) attempt(ctx context.Context, v *inspection) error {
	t := v.token
	if err := t.usable(); err != nil {
		return err
	}
	// This is only a warning, since the provisioner's clock decides.
	if remedy := t.outOfDate(e.clock.now()); remedy != "" {
		e.problems.problem(ctx, slog.LevelWarn, msgDates, advice.Errorf(remedy, "token %s", t.file), "node", v.identity)
	} else {
		e.problems.solved(msgDates)
	}
	st, err := e.sets.openStage(ctx, v.identity, false)
	if err != nil {
		return link.Explain(fmt.Errorf("prepare key: %w", err), link.Peer{})
	}
	facts, problem, err := e.facts(ctx, v)
	if err != nil {
		return err
	}
	brokers, err := e.dialer.Brokers(ctx, t.URLs(), t.SRVDomain, t.Secure)
	if err != nil {
		return link.Explain(err, link.Peer{})
	}
	request := wire.EnrollRequest{
		Identity:   string(v.identity),
		Token:      t.text,
		CSR:        st.csr,
		Facts:      facts,
		FactsError: problem,
		Agent:      e.agentName(),
		Boot:       e.boot,
	}
	var failures []error
	for _, b := range brokers {
		p := e.tokenPeer(t, b)
		conn, err := e.connectWithToken(ctx, v, b)
		if err != nil {
			failures = append(failures, link.Explain(err, p))
			continue
		}
		answered, err := e.enrollAt(ctx, conn, request, st, v)
		conn.End()
		if err = link.Explain(err, p); answered {
			return err
		}
		failures = append(failures, err)
	}
	return link.Join(failures)
}

// enrollAt reports whether a provisioner answered; other brokers would bring the same answer.
func (e *enroller) enrollAt(
	ctx context.Context, conn *link.Conn, request wire.EnrollRequest, st *stage, v *inspection,
) (answered bool, err error) {
	request.ID = wire.NewID()
	if n := len(request.Facts); n > wire.MaxPlainFactsBytes && !conn.Private {
		request.Facts, request.FactsError = nil, fmt.Sprintf("%d bytes, limit %d without TLS or --seal: "+
			"they follow once the node is in the fleet", n, wire.MaxPlainFactsBytes)
	}
	if request.Continuity, err = e.continuity(&request, st.key); err != nil {
		return false, err
	}
	reply, err := conn.Request(ctx, wire.SubjectEnroll, request.ID, &request)
	if err != nil {
		return false, err
	}
	authority := trust.Authority{Pin: v.token.Limits.CA}
	if authority.Pin == "" {
		authority.Known = e.sets.knownRoots(v.identity)
	}
	if r := reply.Refusal; r != nil {
		return true, e.refused(reply, authority, v, st.key)
	}
	e.cfg.hooks.steps("answered")
	o, err := e.applyReply(ctx, conn, reply, expectation{
		identity:       v.identity,
		key:            st.key,
		authority:      authority,
		now:            e.clock.at,
		identityInConf: v.identityInConf,
		facts:          request.Facts,
		factsError:     request.FactsError,
	})
	if err != nil {
		return true, err
	}
	e.ordersDone(ctx, wire.VerbReprovision, wire.VerbReconfigure)
	err = e.confirm(ctx, conn, o.creds, o.pending)
	switch {
	case errors.Is(err, errDisowned):
		e.state.unusable, e.state.unusableSince = err, time.Now()
		return true, err
	case err != nil:
		e.cfg.Log.InfoContext(ctx, "confirmation postponed", "node", v.identity, "err", err)
		return true, nil
	}
	e.provisioned(ctx, v.identity, o.creds.Serial)
	return true, nil
}

// refused returns a refusal as an error. An unproven order to stop is none.
func (e *enroller) refused(
	reply *link.Reply, authority trust.Authority, v *inspection, key crypto.Signer,
) error {
	r := link.Refusal{Refusal: reply.Refusal}
	if r.Code == wire.CodeShutdown {
		if err := checkSigned(reply, authority, v.identity, nil, e.clock.at); err != nil {
			return fmt.Errorf("%s: %w", r.Error(), err)
		}
	}
	return advice.New(r, e.refusalRemedy(r, v, key))
}

// refusalRemedy returns the refusal's remedy, with the node's name and key where they help.
func (e *enroller) refusalRemedy(r link.Refusal, v *inspection, key crypto.Signer) string {
	switch r.Code {
	case wire.CodeApprovalPending:
		return fmt.Sprintf("ask an operator to run `muster node approve %s --fingerprint %.16s`, which says what to "+
			"do if the name is taken; the node asks again by itself", v.identity, keyHash(key))
	case wire.CodeDenied:
		return fmt.Sprintf("ask an operator to run `muster node explain %s`, which shows why and what to do; "+
			"the node asks again by itself", v.identity)
	case wire.CodeDeferred:
		return fmt.Sprintf("nothing: the node asks again by itself; "+
			"`muster node pending -o wide --prefix %s` shows why", v.identity)
	case wire.CodeTokenExpired, wire.CodeTokenNotYetValid:
		return cmp.Or(v.token.outOfDate(e.clock.now()), r.Remedy())
	}
	return r.Remedy()
}

func keyHash(key crypto.Signer) string {
	spki, _ := x509.MarshalPKIXPublicKey(key.Public()) // a key that made a certificate request
	return fmt.Sprintf("%x", sha256.Sum256(spki))
}

// continuity signs a request for another key with the key in force; nil if there is none. This proves the identity of a
// node whose certificate expired during a renewal.
func (e *enroller) continuity(r *wire.EnrollRequest, key crypto.Signer) (*wire.Continuity, error) {
	held, err := e.sets.keyInForce(wire.Identity(r.Identity))
	if err != nil {
		return nil, fmt.Errorf("continuity: %w", err)
	}
	if held == nil || wire.SamePublicKey(held.Public(), key.Public()) {
		return nil, nil
	}
	return wire.SignContinuity(held, r.ID, r.Identity, r.CSR)
}

// abandonReprovision ends an order to reprovision that is refused for good or unanswered for RefusedLimit, for
// example because the token has expired.
func (e *enroller) abandonReprovision(ctx context.Context, v *inspection, err error) bool {
	var refused link.Refusal
	final := errors.As(err, &refused) && !wire.MeaningOf(refused.Code).Retry
	over := final || time.Since(e.answered) >= e.cfg.RefusedLimit
	if !over || v.creds == nil || !e.orders.IsOpen(wire.VerbReprovision) {
		return false
	}
	e.cfg.Log.WarnContext(ctx, "node not reprovisioned, it keeps its certificate and configuration",
		"node", v.identity, "err", err)
	e.ordersDone(ctx, wire.VerbReprovision)
	return true
}
