package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/discover"
	"muster/internal/wire"
)

// errStopped means that a policy asked the agent to end.
var errStopped = errors.New("stopped by policy")

// Messages that are logged once per change.
const (
	msgFailed  = "enrollment failed"
	msgRefused = "enrollment refused"
	msgExpired = "token has expired by this machine's clock"
)

// enroll tries to enroll until the node is provisioned, or until what is on
// its disk asks for something else; both return nil, and the caller looks
// again. The error is errStopped.
func (s *Server) enroll(ctx context.Context, id wire.Identity) error {
	s.begun = s.cfg.Now()
	wait := s.newBackoff()
	for ctx.Err() == nil {
		files := s.fingerprints() // before the look, so that no change is missed
		v, err := s.look()
		if err != nil || v.mode != ModeProvisioning || v.identity != id {
			return nil
		}
		err = s.attempt(ctx, v)
		var refused refusal
		switch {
		case err == nil:
			s.once.solved(msgFailed)
			s.once.solved(msgRefused)
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refused) && refused.Code == wire.CodeShutdown:
			s.cfg.Log.WarnContext(ctx, "agent ends, a policy asks for it", "node", id, "code", refused.Code,
				"err", refused.Error(), "remedy", refused.remedy())
			s.observe(Event{Kind: EventRefused, Code: refused.Code})
			return errStopped
		case errors.As(err, &refused):
			s.once.solved(msgFailed)
			s.once.problem(ctx, s.cfg.Log, slog.LevelWarn, msgRefused, &cause{what: err, remedy: refused.remedy()}, "node", id, "code", refused.Code)
			s.observe(Event{Kind: EventRefused, Code: refused.Code, Elapsed: s.elapsed()})
			// As told, so that the provisioner can spread its backlog; else
			// as after a failure.
			pause := wait.next()
			if told := refused.Wait(); told > 0 {
				pause = told
			}
			s.pause(ctx, pause, files)
		default:
			s.once.problem(ctx, s.cfg.Log, slog.LevelWarn, msgFailed, err, "node", id)
			s.observe(Event{Kind: EventFailed, Err: err, Elapsed: s.elapsed()})
			s.pause(ctx, wait.next(), files)
		}
	}
	return nil
}

// attempt makes one attempt to enroll, at each broker in turn until one leads
// to an answer. After nil the new set is in force; whether that is confirmed
// is in its applied.json.
func (s *Server) attempt(ctx context.Context, v *view) error {
	t := v.token
	if err := t.usable(); err != nil {
		return err
	}
	p := peer{file: t.file}
	if t.expired(s.now()) {
		p.expired = t.expires.Format(time.RFC3339)
		s.once.problem(ctx, s.cfg.Log, slog.LevelWarn, msgExpired,
			&cause{what: fmt.Errorf("token %s expired at %s", t.file, p.expired),
				remedy: "sign a new token and replace the file, or set this machine's clock"}, "node", v.identity)
	} else {
		s.once.solved(msgExpired)
	}
	stage, err := s.openStage(ctx, v.identity)
	if err != nil {
		return explain(fmt.Errorf("prepare key: %w", err), p)
	}
	brokers, err := s.brokers(ctx, t.urls, t.srv, t.secure)
	if err != nil {
		return explain(err, p)
	}
	request := wire.EnrollRequest{
		Identity: string(v.identity), Token: t.text, CSR: stage.csr,
		Facts: s.facts(ctx, t, v.conf), Agent: "muster-server " + s.cfg.Version, Boot: s.boot,
	}
	if len(request.Agent) > 128 {
		request.Agent = request.Agent[:128] // the protocol's limit
	}
	var failures []error
	for _, b := range brokers {
		p.broker, p.secure = b.URL, t.secure || hasTLSScheme(b.URL)
		conn, err := s.connect(ctx, b, s.provisioningOptions(ctx, t, b)...)
		if err != nil {
			failures = append(failures, explain(err, p))
			continue
		}
		answered, err := s.enrollAt(ctx, conn, request, stage, t.limits.CA)
		conn.Close()
		<-conn.closed
		if answered {
			return explain(err, p)
		}
		failures = append(failures, explain(err, p))
	}
	return joined(failures)
}

// enrollAt enrolls over one connection. It reports whether a provisioner
// answered: another broker then leads to the same answer.
func (s *Server) enrollAt(ctx context.Context, conn *connection, request wire.EnrollRequest, stage *stage, pin string) (answered bool, err error) {
	request.ID = wire.NewID()
	reply, err := s.request(ctx, conn, wire.SubjectEnroll, request.ID, &request)
	switch {
	case err != nil:
		return false, err
	case reply.Refusal != nil:
		return true, refusal{reply.Refusal}
	case reply.Enrolled == nil:
		return true, fmt.Errorf("%w: a confirmation, want a certificate", errReply)
	}
	s.step("answered")
	set, creds, err := s.check(ctx, reply.Enrolled, expectation{
		identity: wire.Identity(request.Identity), key: stage.key, pin: pin, now: s.nowFor})
	if err != nil {
		return true, &cause{what: err, remedy: "see the provisioner's log; if it says that all is well, somebody alters replies on the way"}
	}
	if err := s.apply(ctx, set); err != nil {
		return true, fmt.Errorf("apply: %w", err)
	}
	s.again = nil
	s.saveClock(ctx)
	s.cfg.Log.InfoContext(ctx, "configuration applied", "node", request.Identity, "serial", creds.serial, "elapsed", s.elapsed())
	s.observe(Event{Kind: EventApplied, Serial: creds.serial, Broker: conn.broker, Elapsed: s.elapsed()})
	err = s.confirmSoon(ctx, conn, stage, set.pending)
	if errors.Is(err, errDisowned) {
		s.again = err
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
	set, creds, err := checkReply(e, want)
	if !errors.Is(err, errExpired) || !s.seen.After(s.cfg.Now()) {
		return set, creds, err
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

// brokers resolves where to connect, anew each time.
func (s *Server) brokers(ctx context.Context, urls []string, srv string, secure bool) ([]discover.Broker, error) {
	r, err := discover.New(discover.Config{URLs: urls, SRVDomain: srv, Secure: secure, Resolvers: s.cfg.Resolvers})
	if err != nil {
		return nil, err
	}
	return r.Brokers(ctx)
}

// elapsed returns the time since the agent began to enroll, or 0 if it has not.
func (s *Server) elapsed() time.Duration {
	if s.begun.IsZero() {
		return 0
	}
	return s.cfg.Now().Sub(s.begun)
}
