package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/discover"
	"muster/internal/wire"
)

// errStopped means that a policy, or a command, asked the agent to end.
var errStopped = errors.New("asked to stop")

// Messages that are logged once per change.
const (
	msgFailed  = "enrollment failed"
	msgRefused = "enrollment refused"
	msgWaiting = "node waits"
	msgExpired = "token has expired by this machine's clock"
	msgEarly   = "token is not valid yet by this machine's clock"
)

// enroll tries to enroll until the node is provisioned, or until what is on
// its disk asks for something else; the caller looks again. The error is
// errStopped.
func (s *Server) enroll(ctx context.Context, id wire.Identity) (provisioned bool, err error) {
	s.begun = s.cfg.Now()
	defer func() { s.awaited = "" }()
	wait := s.newBackoff()
	answered := time.Now() // by a provisioner, or it begins
	for ctx.Err() == nil {
		files := s.fingerprints() // before the look, so that no change is missed
		v, err := s.look()
		if err != nil || v.mode != ModeProvisioning || v.identity != id || s.lock.removed() {
			return false, nil
		}
		err = s.attempt(ctx, v)
		var refused refusal
		switch {
		case err == nil:
			s.once.solved(msgFailed)
			s.once.solved(msgRefused)
			s.once.solved(msgWaiting)
			return true, nil
		case ctx.Err() != nil:
			return false, nil
		case errors.As(err, &refused) && refused.Code == wire.CodeShutdown:
			s.noteFailure(ctx, id, err, refused.Code)
			s.cfg.Log.WarnContext(ctx, "agent ends, a policy asks for it", "node", id, "code", refused.Code,
				"err", refused.Error(), "remedy", refused.remedy())
			s.observe(Event{Kind: EventRefused, Code: refused.Code})
			return false, errStopped
		case s.givesUp(ctx, v, err, answered), s.admittedAgain(ctx, v):
			return false, nil
		}
		if errors.As(err, &refused) {
			answered = time.Now()
		}
		s.failed(ctx, id, err, wait, files)
	}
	return false, nil
}

// failed logs and records why an attempt led to no certificate, and waits: as
// long as the provisioner said, so that it can spread its backlog, else as long
// as wait says, or until files change. A provisioner that says when to come back
// works: what made wait longer before is over then, and a node that waits for an
// approval must not sleep through it because a broker was away in between.
func (s *Server) failed(ctx context.Context, id wire.Identity, err error, wait *backoff, files string) {
	pause := wait.next()
	var refused refusal
	if !errors.As(err, &refused) {
		pause = max(pause, slowedBy(err))
		s.noteFailure(ctx, id, err, "")
		s.once.solved(msgWaiting)
		s.once.problem(ctx, s.cfg.Log, slog.LevelWarn, msgFailed, err, "node", id, "retry_in", rounded(pause))
		s.observe(Event{Kind: EventFailed, Err: err, Elapsed: s.elapsed()})
		s.pause(ctx, pause, files)
		return
	}
	if told := refused.Wait(); told > 0 {
		pause = wait.told(told)
	}
	s.once.solved(msgFailed)
	s.noteFailure(ctx, id, err, refused.Code)
	if what := waitsFor(refused.Code); what != "" {
		s.once.solved(msgRefused)
		s.once.problem(ctx, s.cfg.Log, slog.LevelWarn, msgWaiting, err, "node", id, "waits_for", what, "code", refused.Code, "retry_in", rounded(pause))
	} else {
		s.once.solved(msgWaiting)
		s.once.problem(ctx, s.cfg.Log, slog.LevelWarn, msgRefused, err, "node", id, "code", refused.Code, "retry_in", rounded(pause))
	}
	s.observe(Event{Kind: EventRefused, Code: refused.Code, Elapsed: s.elapsed()})
	s.pause(ctx, pause, files)
}

// attempt makes one attempt to enroll, at each broker in turn until one leads
// to an answer. After nil the new set is in force; whether that is confirmed
// is in its applied.json.
func (s *Server) attempt(ctx context.Context, v *view) error {
	s.awaited = ""
	t := v.token
	if err := t.usable(); err != nil {
		return err
	}
	p := peer{file: t.file, sealed: t.sealed(), dates: t.outOfDate(s.now(), s.cfg.Now())}
	s.noteDates(ctx, t, v.identity)
	stage, err := s.openStage(ctx, v.identity)
	if err != nil {
		return explain(fmt.Errorf("prepare key: %w", err), p)
	}
	facts, err := s.facts(ctx, t, v.conf)
	if err != nil {
		return err
	}
	brokers, err := s.brokers(ctx, t.urls, t.srv, t.secure)
	if err != nil {
		return explain(err, p)
	}
	request := wire.EnrollRequest{
		Identity: string(v.identity), Token: t.text, CSR: stage.csr,
		Facts: facts, Agent: s.agentName(), Boot: s.boot,
	}
	var failures []error
	for _, b := range brokers {
		p.broker, p.secure = b.URL, t.secure || hasTLSScheme(b.URL)
		conn, err := s.connectToEnroll(ctx, t, v.conf, b)
		if err != nil {
			failures = append(failures, explain(err, p))
			continue
		}
		answered, err := s.enrollAt(ctx, conn, request, stage, v)
		conn.Close()
		<-conn.closed
		if answered {
			return explainRefusal(explain(err, p), p)
		}
		failures = append(failures, explain(err, p))
	}
	return joined(failures)
}

// noteDates warns of a token that is out of date by this node's clock. The node
// tries it all the same: it is the provisioner's clock that counts.
func (s *Server) noteDates(ctx context.Context, t *token, id wire.Identity) {
	now := s.now()
	warn := func(is bool, message, format string, at time.Time) {
		if !is {
			s.once.solved(message)
			return
		}
		s.once.problem(ctx, s.cfg.Log, slog.LevelWarn, message,
			&cause{what: fmt.Errorf(format, t.file, at.Format(time.RFC3339)), remedy: t.outOfDate(now, s.cfg.Now())}, "node", id)
	}
	warn(t.expired(now), msgExpired, "token %s expired at %s", t.expires)
	warn(t.early(now), msgEarly, "token %s is valid from %s", t.claims.NotBefore)
}

// enrollAt enrolls over one connection. It reports whether a provisioner
// answered: another broker then leads to the same answer.
func (s *Server) enrollAt(ctx context.Context, conn *connection, request wire.EnrollRequest, stage *stage, v *view) (answered bool, err error) {
	request.ID = wire.NewID()
	if request.Continuity, err = s.continuity(&request, stage.key); err != nil {
		return false, err
	}
	reply, err := s.request(ctx, conn, wire.SubjectEnroll, request.ID, &request)
	switch {
	case err != nil:
		return false, err
	case reply.Refusal != nil:
		r := refusal{reply.Refusal}
		return true, &cause{what: r, remedy: waitRemedy(r, request.Identity, stage.key)}
	case reply.Enrolled == nil:
		return true, fmt.Errorf("%w: a confirmation, want a certificate", errReply)
	}
	s.step("answered")
	set, creds, err := s.check(ctx, reply.Enrolled, expectation{
		identity: v.identity, key: stage.key, pin: v.token.limits.CA, now: s.nowFor, token: v.token, named: v.named})
	if err != nil {
		err = s.complain(ctx, conn, stage.key, wordOn(v.identity, reply.Enrolled), err)
		return true, &cause{what: err, remedy: cmp.Or(remedyOf(err), "see the provisioner's log; if it says that all is well, somebody alters replies on the way")}
	}
	if err := s.apply(ctx, set); err != nil {
		_ = s.complain(ctx, conn, stage.key, set.pending, err) // it is this node's own to mend
		return true, fmt.Errorf("apply: %w", err)
	}
	s.again = nil
	s.obeyed(ctx, wire.VerbReprovision, wire.VerbReconfigure)
	s.forgetFailure(ctx)
	s.saveClock(ctx)
	s.cfg.Log.InfoContext(ctx, "configuration applied", "node", request.Identity, "serial", creds.serial, "elapsed", s.elapsed())
	s.observe(Event{Kind: EventApplied, Serial: creds.serial, Broker: conn.broker, Elapsed: s.elapsed()})
	err = s.confirmSoon(ctx, conn, stage, set.pending)
	if errors.Is(err, errDisowned) {
		s.again, s.told = err, time.Now()
		return true, err
	}
	if err != nil {
		// Normal mode goes on with it.
		s.cfg.Log.InfoContext(ctx, "confirmation put off", "node", request.Identity, "err", err)
		return true, nil
	}
	s.cfg.Log.InfoContext(ctx, "node provisioned", "node", request.Identity, "serial", creds.serial, "elapsed", s.elapsed())
	s.observe(Event{Kind: EventConfirmed, Serial: creds.serial, Broker: conn.broker, Elapsed: s.elapsed()})
	return true, nil
}

// check is checkReply, with a second look at the clock: a reply to this
// node's own request is fresh, so if its certificate is over only by the time
// that was saved, it is that time which was wrong.
func (s *Server) check(ctx context.Context, e *wire.Enrolled, want expectation) (*set, *credentials, error) {
	if err := s.checkFactsFile(ctx, e, want.token); err != nil {
		return nil, nil, fmt.Errorf("%w: configuration: %w", errReply, err)
	}
	set, creds, err := checkReply(e, want)
	if err == nil {
		s.doubtClock(ctx, creds.leaf())
	}
	if !errors.Is(err, errExpired) {
		return set, creds, err
	}
	if own := s.cfg.Now(); !s.passed().After(own) {
		return nil, nil, &cause{what: err, remedy: fmt.Sprintf(
			"this machine's clock says %s, and by it a certificate is over that a provisioner has just given out: set the clock that is wrong", own.UTC().Format(time.RFC3339))}
	}
	saved := s.seen
	s.seen = time.Time{}
	set, creds, again := checkReply(e, want)
	if again != nil {
		s.seen = saved
		return nil, nil, err
	}
	s.cfg.Log.WarnContext(ctx, "saved time dropped, it was ahead of a fresh certificate", "saved", saved)
	s.setClock(ctx, s.cfg.Now().UTC().Truncate(time.Second))
	return set, creds, nil
}

// checkFactsFile refuses a configuration that names facts which are there and cannot be
// sent: under it the node would never ask again, not for a better one either.
func (s *Server) checkFactsFile(ctx context.Context, e *wire.Enrolled, t *token) error {
	file := s.factsFile(t, &conf{factsFile: e.Configuration[keyFacts[0]]})
	if file == s.factsFile(t, nil) {
		return nil
	}
	if err := s.unsendable(ctx, file); err != nil {
		return fmt.Errorf("%s: %w", keyFacts[0], err)
	}
	return nil
}

// brokers resolves where to connect, anew each time.
func (s *Server) brokers(ctx context.Context, urls []string, srv string, secure bool) ([]discover.Broker, error) {
	r, err := discover.New(discover.Config{URLs: urls, SRVDomain: srv, Secure: secure, Resolvers: s.cfg.Resolvers})
	if err != nil {
		return nil, err
	}
	list, err := r.Brokers(ctx)
	return list, sayOnce(err, discover.ErrNoBrokers)
}

// elapsed returns the time since the agent began to enroll, or 0 if it has not.
func (s *Server) elapsed() time.Duration {
	if s.begun.IsZero() {
		return 0
	}
	return s.cfg.Now().Sub(s.begun)
}
