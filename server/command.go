package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/server/orders"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
)

// A provisioner answers a nonce at once. If another provisioner has got a nonce since, it asks for a new one.
const (
	challengeTTL   = 30 * time.Second
	commandBacklog = 16
)

type challenge struct {
	id, nonce string
	until     time.Time
}

type commands struct {
	nodeContext
	renewal   *renewal
	challenge challenge
}

func (c *commands) newChallenge(id string) string {
	c.challenge = challenge{id: id, nonce: wire.NewID(), until: time.Now().Add(challengeTTL)}
	return c.challenge.nonce
}

// answersChallenge reports whether a command answers the challenge. Each nonce allows one attempt, right or wrong.
func (c *commands) answersChallenge(m *wire.Command) bool {
	q := c.challenge
	c.challenge = challenge{}
	return q.nonce != "" && q.id == m.ID && q.nonce == m.Nonce && time.Now().Before(q.until)
}

// handle processes one message on the node's command subject. It returns true if the agent has to read its files again;
// the error is [ErrRestart] or errStopped. It ignores messages without a reply subject: they may be replies that
// another node directed here.
func (c *commands) handle(ctx context.Context, conn *link.Conn, m *nats.Msg) (again bool, err error) {
	if m.Reply == "" {
		return false, nil
	}
	cmd, err := wire.DecodeCommand(m.Data)
	if err != nil {
		c.cfg.Log.WarnContext(ctx, "command not understood", "node", c.identity, "err", err)
		c.reply(ctx, m, &wire.CommandReply{Refusal: malformedCommand(err)})
		return false, nil
	}
	if cmd.Nonce == "" {
		c.reply(ctx, m, &wire.CommandReply{ID: cmd.ID, Nonce: c.newChallenge(cmd.ID)})
		return false, nil
	}
	repeated, code, err := c.accept(cmd)
	if err != nil {
		c.cfg.Log.WarnContext(ctx, "command refused", "node", c.identity, "verb", string(cmd.Verb), "command", cmd.ID,
			"code", code, "err", err)
		c.reply(ctx, m, &wire.CommandReply{ID: cmd.ID, Refusal: &wire.Refusal{
			Code:    code,
			Message: fmt.Sprintf("%.512s", err.Error()),
			Remedy:  wire.MeaningOf(code).Remedy,
		}})
		return false, nil
	}
	c.cfg.Log.InfoContext(ctx, "command accepted", "node", c.identity, "verb", string(cmd.Verb), "command", cmd.ID,
		"repeated", repeated)
	c.reply(ctx, m, &wire.CommandReply{ID: cmd.ID, Accepted: &wire.CommandAccepted{Repeated: repeated}})
	c.cfg.hooks.steps("order answered")
	if repeated {
		return false, nil
	}
	switch cmd.Verb {
	case wire.VerbReprovision:
		return true, nil
	case wire.VerbReconfigure:
		c.renewal.nextConfiguration = time.Time{}
		return false, nil
	}
	c.publishEvent(ctx, conn, lifecycleShutdown, c.inspection)
	_ = conn.FlushTimeout(flushTimeout)
	if cmd.Verb == wire.VerbShutdown {
		return false, errStopped
	}
	return false, ErrRestart
}

// accept checks a command's proof and puts a new command on disk.
func (c *commands) accept(cmd *wire.Command) (repeated bool, code wire.Code, err error) {
	if cmd.Identity != string(c.identity) {
		return false, wire.CodeBadRequest, fmt.Errorf("command for %q", cmd.Identity)
	}
	if !c.answersChallenge(cmd) {
		return false, wire.CodeCommandStale, fmt.Errorf("command %s has no unused nonce of this node from the last %v",
			cmd.ID, challengeTTL)
	}
	// Without a shared secret a command proves nothing. Choria's nodes then obey every command.
	if c.token == nil || c.token.Token == "" {
		return false, wire.CodeCommandProof, errors.New("this node has no token with a shared secret")
	}
	if !wire.CheckCommandProof(wire.CommandKey(c.token.Token, c.identity), cmd) {
		return false, wire.CodeCommandProof, fmt.Errorf("command %s is not proven with the shared secret of %s",
			cmd.ID, c.token.file)
	}
	if c.orders.Has(cmd.ID) {
		return true, "", nil
	}
	if err := c.checkPossible(cmd.Verb); err != nil {
		return false, wire.CodeCommandImpossible, link.OneLine(err)
	}
	if err := c.orders.Accept(orders.Order{ID: cmd.ID, Verb: cmd.Verb}); err != nil {
		return false, wire.CodeCommandImpossible, err
	}
	return false, "", nil
}

// checkPossible returns why the node cannot carry out an order, so that the operator knows at once.
func (c *commands) checkPossible(verb wire.Verb) error {
	switch {
	case verb == wire.VerbRestart:
		if _, err := c.state.inspect(); err != nil {
			return advice.InText(err)
		}
	case verb != wire.VerbReprovision:
	case c.Provision.No:
		return errors.New("server.conf says provision = false")
	case c.token.usable() != nil:
		return c.token.usable()
	case c.token.expired(c.clock.now()):
		return fmt.Errorf("token %s expired at %s", c.token.file, c.token.Expiry().Format(time.RFC3339))
	}
	return nil
}

// If the answer is lost, the provisioner repeats the command.
func (c *commands) reply(ctx context.Context, m *nats.Msg, r *wire.CommandReply) {
	b, err := wire.Encode(r)
	if err == nil {
		err = m.Respond(b)
	}
	if err != nil {
		c.cfg.Log.WarnContext(ctx, "could not answer a command", "node", c.identity, "err", err)
	}
}

func malformedCommand(err error) *wire.Refusal {
	r := &wire.Refusal{Code: wire.CodeBadRequest}
	if errors.Is(err, wire.ErrVersion) {
		r.Code, r.Versions = wire.CodeUnsupportedVersion, wire.SupportedVersions
	}
	meaning := wire.MeaningOf(r.Code)
	r.Message, r.Remedy = meaning.Public, meaning.Remedy
	return r
}
