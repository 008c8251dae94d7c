package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/internal/wire"
)

// A Certificate is one of a node's, as far as it is known: a server outside of the process says the digest alone of
// those that its connections came with.
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

// recheck asks the function that admits nodes about a connection that there is. It returns drop if the node would not
// be admitted now, and an error if that is not known.
func (g *Gate) recheck(ctx context.Context, id wire.Identity, c Certificate) (drop bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	err = g.cfg.AdmitNode(ctx, id, c)
	if err == nil {
		return false, nil
	}
	if d := deny(wire.CodeDenied, err); unsure[d.Code] {
		return false, fmt.Errorf("recheck node %q: %w", id, err)
	}
	return true, nil
}

// Recheck drops the connections of these nodes that would not be admitted now, and makes sure that none which is being
// admitted meanwhile stays: write the record or the revocation first, then recheck. Call it again after an error,
// which says why something is not known.
func (b *Broker) Recheck(ctx context.Context, ids ...wire.Identity) error {
	sessions := b.sessions.Load()
	if _, err := b.running(); err != nil || sessions == nil {
		return nil //nolint:nilerr // a broker that does not run has no connections
	}
	b.rechecks.Add(1)
	var first failure
	for _, id := range ids {
		for _, s := range sessions.of(id) {
			switch drop, err := b.gate.recheck(ctx, id, s.certificate); {
			case err != nil:
				first.add(err)
			case drop:
				sessions.end(s.number)
			}
		}
	}
	return first.err()
}

// RecheckAll is [Broker.Recheck] for every node that has a connection.
func (b *Broker) RecheckAll(ctx context.Context) error {
	sessions := b.sessions.Load()
	if sessions == nil {
		return nil
	}
	return b.Recheck(ctx, sessions.ids()...)
}

// fewNodes is for how many nodes at most servers are asked about each by itself, which takes them a few ms, and not
// for all connections of the fleet.
const fewNodes = 8

// Recheck drops the connections of these nodes that would not be admitted now, on every server. One that is being
// admitted meanwhile, by this provisioner or another, is not found: call it again after [AdmissionInFlight]. Call it
// again after an error, too: a server that is known to live did not answer, or something about a node is not known.
func (e *External) Recheck(ctx context.Context, ids ...wire.Identity) error {
	c, err := e.running()
	if err != nil || len(ids) == 0 {
		return err
	}
	if len(ids) > fewNodes {
		wanted := make(map[wire.Identity]bool, len(ids))
		for _, id := range ids {
			wanted[id] = true
		}
		return e.recheck(ctx, c, "", func(id wire.Identity) bool { return wanted[id] })
	}
	var errs []error
	for _, id := range ids {
		errs = append(errs, e.recheck(ctx, c, id, func(other wire.Identity) bool { return other == id }))
	}
	return errors.Join(errs...)
}

// RecheckAll is [External.Recheck] for every node that has a connection.
func (e *External) RecheckAll(ctx context.Context) error {
	c, err := e.running()
	if err != nil {
		return err
	}
	return e.recheck(ctx, c, "", func(wire.Identity) bool { return true })
}

// AdmissionInFlight is how long after a decision of some gate the connection may
// appear among those of a server that is not in this process: as long as a
// question is answered, and a second for the way.
const AdmissionInFlight = admitTimeout + time.Second

// recheck looks at the connections of one node, or of the wanted ones of all. A server that is silent holds up nothing
// on the others.
func (e *External) recheck(ctx context.Context, c *control, node wire.Identity, wanted func(wire.Identity) bool) error {
	var looks sync.WaitGroup
	var first failure
	err := c.connections(ctx, node, func(list []connection) {
		looks.Go(func() {
			for _, conn := range list {
				if !wanted(conn.node) {
					continue
				}
				switch drop, err := e.gate.recheck(ctx, conn.node, Certificate{SHA256: conn.certificate}); {
				case err != nil:
					first.add(err)
				case drop:
					first.add(c.kick(conn))
				}
			}
		})
	})
	looks.Wait()
	return errors.Join(err, first.err(), c.nc.FlushTimeout(c.answerTimeout))
}

// failure keeps the first of many errors, and counts the others. The zero value is ready.
type failure struct {
	mu    sync.Mutex
	first error // guarded by mu
	more  int   // guarded by mu
}

// add takes in an error; nil is none.
func (f *failure) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
	case f.first == nil:
		f.first = err
	default:
		f.more++
	}
}

func (f *failure) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.more > 0 {
		return fmt.Errorf("%w, and %d more", f.first, f.more)
	}
	return f.first
}
