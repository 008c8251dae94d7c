package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/internal/wire"
)

// AccountChoria is for unmodified Choria servers with only a token.
const AccountChoria = "CHORIA"

// Subjects of Choria's protocol. A server publishes replies where the request says, so muster's requests name a
// subject below the server's own.
const (
	choriaNode         = "provisioning.node."
	choriaBroadcast    = "provisioning.broadcast.agent.*" // where nothing may publish; servers log a refusal
	choriaReply        = "provisioning.reply."
	choriaEvent        = "choria.lifecycle.event.*.provision_mode_server"
	choriaRegistration = "provisioning.registration.data"
)

// ChoriaConnection is the longest connection of a Choria server. A server that still waits reconnects within 20 s.
const ChoriaConnection = 2 * time.Minute

// choria admits a Choria server. Its user, which is unique to the connection, is reported with each of its messages.
func (g *Gate) choria(ctx context.Context, p Presented) (*Admission, error) {
	id, err := wire.ParseIdentity(p.Name)
	if err != nil {
		return nil, &Denied{wire.CodeIdentityInvalid, err}
	}
	user, expires, err := g.cfg.AdmitChoria(ctx, id, p)
	if err != nil {
		return nil, deny(wire.CodeTokenInvalid, err)
	}
	deadline, err := g.deadline(expires, ChoriaConnection)
	if err != nil {
		return nil, deny(wire.CodeTokenExpired, err)
	}
	return &Admission{
		Account:   AccountChoria,
		User:      user,
		Publish:   []string{choriaReply + id.SubjectToken() + ".>", choriaEvent, choriaRegistration},
		Subscribe: []string{choriaNode + string(id), choriaBroadcast},
		Deadline:  deadline,
	}, nil
}

// Connected reports whether a connection of [AccountChoria] with this user is open.
func (b *Broker) Connected(_ context.Context, user string) (bool, error) {
	s, err := b.running()
	if err != nil {
		return false, err
	}
	held, err := s.Connz(choriaOptions(user))
	if err != nil {
		return false, fmt.Errorf("connections of Choria servers: %w", err)
	}
	return len(held.Conns) > 0, nil
}

// Connected is like [Broker.Connected], on every server.
func (e *External) Connected(ctx context.Context, user string) (open bool, err error) {
	c, err := e.running()
	if err != nil {
		return false, err
	}
	err = query(ctx, c, connzSubject, choriaOptions(user), func(_ server.ServerInfo, r *server.Connz) {
		open = open || len(r.Conns) > 0
	})
	if open {
		err = nil
	}
	return open, err
}

func choriaOptions(user string) *server.ConnzOptions {
	return &server.ConnzOptions{Account: AccountChoria, Username: true, User: user, Limit: 1}
}
