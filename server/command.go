package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

// ErrRestart means that another agent is to run in place of this one: a command asks for it,
// or somebody has removed the agent's files, and the next one makes its directories.
var ErrRestart = errors.New("another agent is to be started")

// Bounds on what is asked and not yet answered; chosen. A provisioner answers a
// nonce at once.
const (
	maxQuestions   = 16
	questionTTL    = 30 * time.Second
	commandBacklog = 16
)

// msgReconfigure is logged once per change.
const msgReconfigure = "node not reconfigured"

// A question is a nonce that waits for its proof.
type question struct {
	id, nonce string
	until     time.Time // by the process's clock
}

// commanding is what a node in normal mode knows of commands.
type commanding struct {
	questions []question // the oldest first
	next      deadline   // when to try again to reconfigure
	wait      *backoff
}

// ask returns a new nonce for the command.
func (c *commanding) ask(id string, now time.Time) string {
	q := question{id: id, nonce: wire.NewID(), until: now.Add(questionTTL)}
	c.questions = append(c.questions, q)
	c.questions = c.questions[max(0, len(c.questions)-maxQuestions):]
	return q.nonce
}

// answers reports whether a command answers a question, and takes that away:
// each is good for one proof, a wrong one included.
func (c *commanding) answers(m *wire.Command, now time.Time) bool {
	i := slices.IndexFunc(c.questions, func(q question) bool { return q.id == m.ID && q.nonce == m.Nonce })
	if i < 0 {
		return false
	}
	fresh := now.Before(c.questions[i].until)
	c.questions = slices.Delete(c.questions, i, i+1)
	return fresh
}

// command answers one message on the node's command subject, and does what it
// says. It reports whether the node is to look at its files again; the error is
// [ErrRestart] or errStopped.
//
// What has no reply subject is no command: it may be a reply that another node
// has aimed here (package broker).
func (n *duty) command(ctx context.Context, conn *connection, m *nats.Msg) (again bool, err error) {
	if m.Reply == "" {
		return false, nil
	}
	c, err := wire.DecodeCommand(m.Data)
	if err != nil {
		n.cfg.Log.WarnContext(ctx, "command not understood", "node", n.identity, "err", err)
		n.reply(ctx, m, &wire.CommandReply{Refusal: malformedCommand(err)})
		return false, nil
	}
	if c.Nonce == "" {
		n.reply(ctx, m, &wire.CommandReply{ID: c.ID, Nonce: n.commands.ask(c.ID, time.Now())})
		return false, nil
	}
	repeated, err := n.take(ctx, c)
	if err != nil {
		r := commandRefusal(err)
		n.cfg.Log.WarnContext(ctx, "command refused", "node", n.identity, "verb", string(c.Verb), "command", c.ID, "code", r.Code, "err", err)
		n.reply(ctx, m, &wire.CommandReply{ID: c.ID, Refusal: r})
		return false, nil
	}
	n.cfg.Log.InfoContext(ctx, "command accepted", "node", n.identity, "verb", string(c.Verb), "command", c.ID, "repeated", repeated)
	n.reply(ctx, m, &wire.CommandReply{ID: c.ID, Accepted: &wire.Obeyed{Repeated: repeated}})
	n.step("order answered")
	if repeated {
		return false, nil
	}
	n.complained, n.nextAstray = complaint{}, deadline{} // whoever gives an order hears what stands in its way
	switch c.Verb {
	case wire.VerbReprovision:
		return true, nil
	case wire.VerbReconfigure:
		n.commands.next = deadline{}
		return false, nil
	}
	n.publishEvent(ctx, conn, lifecycleShutdown, n.view)
	_ = conn.FlushTimeout(flushTimeout) // the answer, too: best effort, a command that comes again is known
	n.obeyed(ctx, wire.VerbShutdown)
	if c.Verb == wire.VerbShutdown {
		return false, errStopped
	}
	return false, ErrRestart
}

// A commandError is why a command is refused.
type commandError struct {
	code wire.Code
	err  error
}

func (e *commandError) Error() string { return e.err.Error() }

// take proves a command and puts it on disk, unless it is there already.
func (n *duty) take(ctx context.Context, c *wire.Command) (repeated bool, err error) {
	refuse := func(code wire.Code, format string, args ...any) error {
		return &commandError{code, fmt.Errorf(format, args...)}
	}
	if c.Identity != string(n.identity) {
		return false, refuse(wire.CodeBadRequest, "command for %q", c.Identity)
	}
	if !n.commands.answers(c, time.Now()) {
		return false, refuse(wire.CodeCommandStale, "command %s does not answer a nonce of the last %v", c.ID, questionTTL)
	}
	// Without a secret nothing is proven. Choria's nodes let everybody in then.
	if n.token == nil || n.token.claims.Token == "" {
		return false, refuse(wire.CodeCommandProof, "this node has no token with a shared secret")
	}
	if !wire.CheckCommandProof(wire.CommandKey(n.token.claims.Token, n.identity), c) {
		return false, refuse(wire.CodeCommandProof, "command %s is not proven by the secret of %s", c.ID, n.token.file)
	}
	if n.orders.has(c.ID) {
		return true, nil
	}
	if err := n.impossible(ctx, c.Verb); err != nil {
		return false, refuse(wire.CodeCommandImpossible, "%w", oneLine(err))
	}
	if err := n.accept(order{ID: c.ID, Verb: c.Verb}); err != nil {
		return false, refuse(wire.CodeCommandImpossible, "write %s: %w", n.at.orders, err)
	}
	return false, nil
}

// impossible says why an order would not be done, so that whoever gives it is told, and
// does not wait for it: the node would not come back from provisioning mode, would not
// even enter it, would not ask at all, or the agent would end and no other one begin.
func (n *duty) impossible(ctx context.Context, verb wire.Verb) error {
	switch verb {
	case wire.VerbShutdown:
		return nil
	case wire.VerbRestart:
		return n.startable()
	case wire.VerbReprovision:
		switch t := n.token; {
		case n.says.No:
			return errors.New("server.conf says provision = false")
		case t.usable() != nil:
			return t.usable()
		case t.expired(n.now()):
			return fmt.Errorf("token %s expired at %s", t.file, t.expires.Format(time.RFC3339))
		}
	}
	return n.unsendable(ctx, n.factsFile(n.token, n.conf))
}

// startable says why an agent that is started now would end at once: this one works on with
// what it has read before.
func (n *duty) startable() error {
	v, err := n.look()
	switch {
	case passing(err):
		return nil
	case err != nil:
		return advised(err)
	case v.renamed != nil:
		return advised(v.renamed)
	}
	return nil
}

// reply answers a command. An answer that is lost is asked for again.
func (n *duty) reply(ctx context.Context, m *nats.Msg, r *wire.CommandReply) {
	b, err := wire.Encode(r)
	if err == nil {
		err = m.Respond(b)
	}
	if err != nil {
		n.cfg.Log.WarnContext(ctx, "answer to a command not sent", "node", n.identity, "err", err)
	}
}

// commandRefusal is what a provisioner is told.
func commandRefusal(err error) *wire.Refusal {
	code := wire.CodeCommandImpossible
	var e *commandError
	if errors.As(err, &e) {
		code = e.code
	}
	return &wire.Refusal{Code: code, Message: fmt.Sprintf("%.*s", maxTold, err.Error()), Remedy: wire.MeaningOf(code).Remedy}
}

// malformedCommand is what whoever sent no command is told.
func malformedCommand(err error) *wire.Refusal {
	code := wire.CodeBadRequest
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		code = wire.CodeTooLarge
	case errors.Is(err, wire.ErrVersion):
		code = wire.CodeUnsupportedVersion
	}
	meaning := wire.MeaningOf(code)
	r := &wire.Refusal{Code: code, Message: meaning.Public, Remedy: meaning.Remedy}
	if code == wire.CodeUnsupportedVersion {
		r.Versions = wire.SupportedVersions
	}
	return r
}

// reconfigureDue reports whether it is time to ask for the configuration.
func (n *duty) reconfigureDue() bool {
	return n.orders.doing(wire.VerbReconfigure) && n.come(n.commands.next)
}

// reconfigure asks once for the configuration as it is decided now, with the key
// and for the certificate in force, and switches to it as to a renewed
// certificate: what holds there for an agent that is killed holds here. A
// renewal that is under way is gone on with instead, since it brings the same.
// After a refusal that will not change by itself the order is over.
func (n *duty) reconfigure(ctx context.Context, conn *connection) {
	serial, err := n.renewOver(ctx, conn, false)
	if err == nil {
		n.once.solved(msgReconfigure)
		n.cfg.Log.InfoContext(ctx, "configuration applied", "node", n.identity, "serial", serial, "elapsed", n.elapsed())
		n.observe(Event{Kind: EventApplied, Serial: serial, Broker: conn.broker, Elapsed: n.elapsed()})
		return
	}
	if ctx.Err() != nil {
		return
	}
	wait := max(n.commands.wait.next(), slowedBy(err))
	var refused refusal
	if errors.As(err, &refused) {
		wait = cmp.Or(refused.Wait(), wait)
		n.observe(Event{Kind: EventRefused, Code: refused.Code, Elapsed: n.elapsed()})
		if !wire.MeaningOf(refused.Code).Retry {
			n.obeyed(ctx, wire.VerbReconfigure)
		}
	} else {
		n.observe(Event{Kind: EventFailed, Err: err, Elapsed: n.elapsed()})
	}
	n.commands.next = n.in(wait)
	n.once.problem(ctx, n.cfg.Log, slog.LevelWarn, msgReconfigure, explain(err, peer{normal: true, broker: conn.broker}),
		"node", n.identity, "serial", n.creds.serial, "retry_in", rounded(wait))
}

// givesUp reports whether an order to reprovision is over because a provisioner
// refuses the node for good, or because none has answered for as long as a broker may
// refuse: its token has ended meanwhile, say, or leads nowhere. The node still has a
// certificate and a configuration, and goes back to the fleet with them, where
// somebody can reach it.
func (s *Server) givesUp(ctx context.Context, v *view, err error, answered time.Time) bool {
	if !s.orders.doing(wire.VerbReprovision) || v.creds == nil {
		return false
	}
	e := Event{Kind: EventFailed, Err: err, Elapsed: s.elapsed()}
	var refused refusal
	if errors.As(err, &refused) {
		if wire.MeaningOf(refused.Code).Retry {
			return false
		}
		e.Kind, e.Code, e.Err = EventRefused, refused.Code, nil
	} else if time.Since(answered) < s.cfg.RefusedLimit {
		return false
	}
	s.cfg.Log.WarnContext(ctx, "node is not reprovisioned, and goes on with what it has", "node", v.identity, "code", e.Code, "err", err)
	s.observe(e)
	s.obeyed(ctx, wire.VerbReprovision)
	return true
}
