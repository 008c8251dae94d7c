package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats-server/v2/server"

	"muster/internal/wire"
)

// Recheck drops every live connection of these nodes that holds a certificate
// which is not admitted any more, and makes sure that none which was being
// admitted meanwhile stays: write the record first, then recheck. Connections
// with a certificate that is live go on, so rechecking twice, or a node of which
// nothing has changed, is harmless.
//
// It goes through the connections of the whole fleet, once for all ids (about
// 10 µs each): gather them. The error is [ErrNotRunning], or why some node's
// certificates could not be learned ([GateConfig].LiveNode); its connections
// stay, and the call is to be repeated for the ids that are returned with it.
func (b *Broker) Recheck(ctx context.Context, ids ...wire.Identity) (again []wire.Identity, err error) {
	if b.cfg.Gate.LiveNode == nil {
		return nil, errors.New("recheck: the gate knows no list of live certificates")
	}
	s, err := b.running()
	if err != nil {
		return ids, err
	}
	b.kicks.Add(1) // as in Disconnect
	conns, err := s.Connz(&server.ConnzOptions{Account: AccountFleet, Username: true, Limit: b.cfg.MaxConnections})
	if err != nil {
		return ids, fmt.Errorf("list connections: %w", err)
	}
	// The connections are listed before the records are read: what was live when
	// a connection on the list was admitted, and is not on its record now, has
	// ceased to be.
	held := make(map[wire.Identity][]*server.ConnInfo, len(ids))
	for _, id := range ids {
		held[id] = nil
	}
	for _, c := range conns.Conns {
		if list, ok := held[wire.Identity(c.AuthorizedUser)]; ok {
			held[wire.Identity(c.AuthorizedUser)] = append(list, c)
		}
	}
	var errs []error
	for id, list := range held {
		if len(list) == 0 {
			continue
		}
		live, err := b.cfg.Gate.LiveNode(ctx, id)
		if err != nil {
			again, errs = append(again, id), append(errs, fmt.Errorf("recheck %q: %w", id, err))
			continue
		}
		for _, c := range list {
			if len(c.TLSPeerCerts) == 0 || !slices.Contains(live, c.TLSPeerCerts[0].CertSha256) {
				_ = s.DisconnectClientByID(c.Cid) // it has gone by itself
			}
		}
	}
	return again, errors.Join(errs...)
}
