package natsapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/operate"
)

// A node answers at once, or after up to 15 s while it waits for a reply itself (server.Config.RequestTimeout). The
// broker admits an answer for 10 s.
const (
	commandTimeout = 10 * time.Second
	commandTries   = 2
)

// A Commander sends commands to nodes. It is safe for concurrent use.
type Commander struct {
	conn *nats.Conn
}

// NewCommander returns a Commander on a connection to the account MUSTER.
func NewCommander(conn *nats.Conn) *Commander { return &Commander{conn: conn} }

// Command asks the node for a nonce, and then sends the proof by key. If the nonce is stale, it tries once more. The
// error is [operate.ErrNodeAway], [operate.ErrNodeSilent], or a *[provisioner.Refusal] by the node.
func (s *Commander) Command(ctx context.Context, c wire.Command, key []byte) (*wire.CommandAccepted, error) {
	for try := 1; ; try++ {
		accepted, err := s.once(ctx, c, key)
		refused, ok := errors.AsType[*provisioner.Refusal](err)
		if ok && try < commandTries && refused.Code == wire.CodeCommandStale {
			continue
		}
		return accepted, err
	}
}

func (s *Commander) once(ctx context.Context, c wire.Command, key []byte) (*wire.CommandAccepted, error) {
	c.Nonce, c.Proof = "", nil
	asked, err := s.send(ctx, &c)
	switch {
	case errors.Is(err, operate.ErrNodeSilent):
		// Only a nonce was requested, so nothing was executed.
		return nil, fmt.Errorf("%w, or is busy", operate.ErrNodeAway)
	case err != nil:
		return nil, err
	case asked.Nonce == "":
		return nil, fmt.Errorf("answer of node %q: no nonce", c.Identity)
	}
	c.Nonce = asked.Nonce
	c.Proof = wire.CommandProof(key, &c)
	answer, err := s.send(ctx, &c)
	switch {
	case errors.Is(err, operate.ErrNodeAway):
		return nil, fmt.Errorf("%w any more", err)
	case err != nil:
		return nil, err
	case answer.Accepted == nil:
		return nil, fmt.Errorf("answer of node %q: another nonce, want an acceptance", c.Identity)
	}
	return answer.Accepted, nil
}

func (s *Commander) send(ctx context.Context, c *wire.Command) (*wire.CommandReply, error) {
	b, err := wire.Encode(c)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	m, err := s.conn.RequestWithContext(bounded, wire.CommandSubject(wire.Identity(c.Identity)), b)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, operate.ErrNodeAway
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return nil, fmt.Errorf("%w within %v", operate.ErrNodeSilent, commandTimeout)
	case err != nil:
		return nil, err
	}
	r, err := wire.DecodeCommandReply(m.Data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("answer of node %q: %w", c.Identity, err)
	case r.ID != c.ID && r.Refusal == nil:
		return nil, fmt.Errorf("answer of node %q: it is for another command", c.Identity)
	case r.Refusal != nil:
		return nil, operate.NodeRefusal(wire.Identity(c.Identity), r.Refusal)
	}
	return r, nil
}
