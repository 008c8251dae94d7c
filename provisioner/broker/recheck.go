package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
)

// A Certificate identifies a node's certificate.
type Certificate struct {
	Serial string // see [ca.Serial]; empty if not known
	SHA256 string // of its DER, lower-case hex
}

// undecided codes say nothing about the node, so its connections stay.
var undecided = map[wire.Code]bool{
	wire.CodeBusy:               true,
	wire.CodeClockBehind:        true,
	wire.CodeRevocationsUnknown: true,
	wire.CodeStoreUnavailable:   true,
	wire.CodeUnavailable:        true,
}

// recheck drops connections in list that are not admitted any more, of all nodes if wanted is nil.
func (g *Gate) recheck(
	ctx context.Context, list []connection, wanted map[wire.Identity]bool, drop func(connection) error,
) error {
	var first error
	failed := 0
	for _, c := range list {
		if wanted != nil && !wanted[c.node] {
			continue
		}
		admitted, err := g.stillAdmits(ctx, c)
		if err == nil && !admitted {
			err = drop(c)
		}
		if err != nil {
			failed++
			first = cmp.Or(first, err)
		}
	}
	if failed > 1 {
		return fmt.Errorf("%w, and %d more", first, failed-1)
	}
	return first
}

func (g *Gate) stillAdmits(ctx context.Context, c connection) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	err := g.cfg.AdmitNode(ctx, c.node, Certificate{SHA256: c.certificate})
	if err != nil && undecided[deny(wire.CodeDenied, err).Code] {
		return false, fmt.Errorf("recheck node %q: %w", c.node, err)
	}
	return err == nil, nil
}

// Up to maxSingleQueries nodes are queried one by one, a few ms each. For more, all connections are listed.
const maxSingleQueries = 8

func forNodes(ctx context.Context, ids []wire.Identity,
	recheck func(ctx context.Context, node wire.Identity, wanted map[wire.Identity]bool) error,
) error {
	var errs []error
	if len(ids) <= maxSingleQueries {
		for _, id := range ids {
			errs = append(errs, recheck(ctx, id, nil))
		}
		return errors.Join(errs...)
	}
	wanted := make(map[wire.Identity]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	return recheck(ctx, "", wanted)
}

// Recheck drops connections of nodes that would not be admitted now, also pending ones. Call it after writing the
// record or revocation, and again after an error.
func (b *Broker) Recheck(ctx context.Context, ids ...wire.Identity) error {
	return forNodes(ctx, ids, b.recheck)
}

// RecheckAll rechecks every connected node.
func (b *Broker) RecheckAll(ctx context.Context) error { return b.recheck(ctx, "", nil) }

func (b *Broker) recheck(ctx context.Context, node wire.Identity, wanted map[wire.Identity]bool) error {
	s, err := b.running()
	if err != nil {
		return nil //nolint:nilerr // a broker that does not run has no connections
	}
	b.rechecks.Add(1) // before listing connections; see authentication.admit
	held, err := s.Connz(connzOptions(node, b.cfg.MaxConnections))
	if err != nil {
		return fmt.Errorf("connections of nodes: %w", err)
	}
	return b.gate.recheck(ctx, connectionsFrom(held), wanted, func(c connection) error {
		_ = s.DisconnectClientByID(c.number) // an error means that it has ended
		return nil
	})
}

// Recheck is like [Broker.Recheck], on every server. It may miss a pending admission: call it again after
// [AdmissionInFlight].
func (e *External) Recheck(ctx context.Context, ids ...wire.Identity) error {
	return forNodes(ctx, ids, e.recheck)
}

// RecheckAll rechecks every connected node.
func (e *External) RecheckAll(ctx context.Context) error { return e.recheck(ctx, "", nil) }

// AdmissionInFlight bounds the time from a decision until the server lists the connection.
const AdmissionInFlight = admitTimeout + time.Second

// recheck checks one node, or all if node is empty. A silent server does not delay the other servers.
func (e *External) recheck(ctx context.Context, node wire.Identity, wanted map[wire.Identity]bool) error {
	c, err := e.running()
	if err != nil {
		return err
	}
	var checks errgroup.Group
	err = c.connections(ctx, node, func(_ server.ServerInfo, list []connection) {
		checks.Go(func() error { return e.callout.gate.recheck(ctx, list, wanted, c.kick) })
	})
	return errors.Join(err, checks.Wait(), c.nc.FlushTimeout(answerTimeout))
}

type connection struct {
	server      string
	number      uint64
	node        wire.Identity
	since       time.Time
	certificate string // SHA-256, hex; empty if the server has none
}

func connzOptions(node wire.Identity, limit int) *server.ConnzOptions {
	return &server.ConnzOptions{Account: AccountFleet, Username: true, User: string(node), Limit: limit}
}

func connectionsFrom(r *server.Connz) []connection {
	var list []connection
	for _, c := range r.Conns {
		held := connection{server: r.ID, number: c.Cid, node: wire.Identity(c.AuthorizedUser), since: c.Start}
		if len(c.TLSPeerCerts) > 0 {
			held.certificate = c.TLSPeerCerts[0].CertSha256
		}
		list = append(list, held)
	}
	return list
}
