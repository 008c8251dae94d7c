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

// A Certificate is one of a node's, as far as it is known: a server knows the digest alone of those of its connections.
type Certificate struct {
	Serial string // see [ca.Serial]; empty if not known
	SHA256 string // of its DER, lower-case hex
}

// unsure are the refusals that say nothing about the node: its connections stay until it is known.
var unsure = map[wire.Code]bool{
	wire.CodeBusy:               true,
	wire.CodeClockBehind:        true,
	wire.CodeRevocationsUnknown: true,
	wire.CodeStoreUnavailable:   true,
	wire.CodeUnavailable:        true,
}

// recheck drops the connections in the list, of the wanted nodes or, if that is nil, of all, that would not be admitted
// now. The error says about what it is not known.
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

// stillAdmits reports whether a connection would be admitted now. The error means that this is not known.
func (g *Gate) stillAdmits(ctx context.Context, c connection) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	err := g.cfg.AdmitNode(ctx, c.node, Certificate{SHA256: c.certificate})
	if err != nil && unsure[deny(wire.CodeDenied, err).Code] {
		return false, fmt.Errorf("recheck node %q: %w", c.node, err)
	}
	return err == nil, nil
}

// fewNodes is for how many nodes at most a server is asked about each by itself, which takes it a few ms, and not
// for all connections of the fleet.
const fewNodes = 8

// eachOf calls recheck for each of few nodes, or once for the connections of all nodes, of which those of the wanted
// ones count.
func eachOf(ids []wire.Identity, recheck func(node wire.Identity, wanted map[wire.Identity]bool) error) error {
	var errs []error
	if len(ids) <= fewNodes {
		for _, id := range ids {
			errs = append(errs, recheck(id, nil))
		}
		return errors.Join(errs...)
	}
	wanted := make(map[wire.Identity]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	return recheck("", wanted)
}

// Recheck drops the connections of these nodes that would not be admitted now, and makes sure that none which is being
// admitted meanwhile stays: write the record or the revocation first, then recheck. Call it again after an error,
// which says why something is not known.
func (b *Broker) Recheck(ctx context.Context, ids ...wire.Identity) error {
	return eachOf(ids, func(node wire.Identity, wanted map[wire.Identity]bool) error {
		return b.recheck(ctx, node, wanted)
	})
}

// RecheckAll is [Broker.Recheck] for every node that has a connection.
func (b *Broker) RecheckAll(ctx context.Context) error { return b.recheck(ctx, "", nil) }

func (b *Broker) recheck(ctx context.Context, node wire.Identity, wanted map[wire.Identity]bool) error {
	s, err := b.running()
	if err != nil {
		return nil //nolint:nilerr // a broker that does not run has no connections
	}
	b.rechecks.Add(1) // before the connections are listed; see authentication.admit
	held, err := s.Connz(connectionsOf(node, b.cfg.MaxConnections))
	if err != nil {
		return fmt.Errorf("connections of nodes: %w", err)
	}
	return b.gate.recheck(ctx, connectionsIn(held), wanted, func(c connection) error {
		_ = s.DisconnectClientByID(c.number) // the error says that it has gone
		return nil
	})
}

// Recheck drops the connections of these nodes that would not be admitted now, on every server. One that is being
// admitted meanwhile, by this provisioner or another, is not found: call it again after [AdmissionInFlight]. Call it
// again after an error, too: a server that is known to live did not answer, or something about a node is not known.
func (e *External) Recheck(ctx context.Context, ids ...wire.Identity) error {
	return eachOf(ids, func(node wire.Identity, wanted map[wire.Identity]bool) error {
		return e.recheck(ctx, node, wanted)
	})
}

// RecheckAll is [External.Recheck] for every node that has a connection.
func (e *External) RecheckAll(ctx context.Context) error { return e.recheck(ctx, "", nil) }

// AdmissionInFlight is how long after a decision of some gate the connection may
// appear among those of a server that is not in this process: as long as a
// question is answered, and a second for the way.
const AdmissionInFlight = admitTimeout + time.Second

// recheck looks at the connections of one node, or of all. A server that is silent does not delay the others.
func (e *External) recheck(ctx context.Context, node wire.Identity, wanted map[wire.Identity]bool) error {
	c, err := e.running()
	if err != nil {
		return err
	}
	var checks errgroup.Group
	err = c.connections(ctx, node, func(list []connection) {
		checks.Go(func() error { return e.gate.recheck(ctx, list, wanted, c.kick) })
	})
	return errors.Join(err, checks.Wait(), c.nc.FlushTimeout(answerTimeout))
}

// connection is one of a node's, on some server.
type connection struct {
	server      string
	number      uint64
	node        wire.Identity
	certificate string // SHA-256, hex; empty if the server knows none
}

// connectionsOf is the request for the connections of a node, or of all nodes.
func connectionsOf(node wire.Identity, limit int) *server.ConnzOptions {
	return &server.ConnzOptions{Account: AccountFleet, Username: true, User: string(node), Limit: limit}
}

// connectionsIn are the connections in a server's answer.
func connectionsIn(r *server.Connz) []connection {
	var list []connection
	for _, c := range r.Conns {
		held := connection{server: r.ID, number: c.Cid, node: wire.Identity(c.AuthorizedUser)}
		if len(c.TLSPeerCerts) > 0 {
			held.certificate = c.TLSPeerCerts[0].CertSha256
		}
		list = append(list, held)
	}
	return list
}
