package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"muster/internal/wire"
)

// Recheck drops every live connection of these nodes that holds a certificate
// which is not admitted any more, and makes sure that none which was being
// admitted meanwhile stays: write the record first, then recheck. Connections
// with a certificate that is live go on, so rechecking twice, or a node of which
// nothing has changed, is harmless.
//
// The error is [ErrNotRunning], or why some node's
// certificates could not be learned ([GateConfig].LiveNode); its connections
// stay, and the call is to be repeated for the ids that are returned with it.
func (b *Broker) Recheck(ctx context.Context, ids ...wire.Identity) (again []wire.Identity, err error) {
	if b.cfg.Gate.LiveNode == nil {
		return nil, errors.New("recheck: the gate knows no list of live certificates")
	}
	if _, err := b.running(); err != nil {
		return ids, err
	}
	b.kicks.Add(1) // as in Disconnect
	sessions := b.sessions.Load()
	var left unsettled
	for _, id := range ids {
		// The connections are listed before the record is read: what was live when
		// one on the list was admitted, and is not on its record now, has ceased to
		// be.
		list := sessions.of(id)
		if len(list) == 0 {
			continue
		}
		live, err := b.cfg.Gate.LiveNode(ctx, id)
		if err != nil {
			left.add(err, id)
			continue
		}
		for _, c := range list {
			if !slices.Contains(live, c.fingerprint()) {
				sessions.end(c.number)
			}
		}
	}
	return left.ids, left.err()
}

// maxSaid is for how many nodes an error says what ails them: chosen, it is one and the same
// mostly, and of ten thousand nodes nobody reads more.
const maxSaid = 3

// unsettled are the nodes about whose connections something could not be done. The zero
// value is ready.
type unsettled struct {
	mu   sync.Mutex
	ids  []wire.Identity // guarded by mu; some may be there twice
	errs []error         // guarded by mu: why, of the first
}

// add adds nodes, and why.
func (u *unsettled) add(err error, ids ...wire.Identity) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.errs) < maxSaid {
		u.errs = append(u.errs, fmt.Errorf("recheck %q: %w", ids[0], err))
	}
	u.ids = append(u.ids, ids...)
}

// err returns what ails the first, and how many there are, or nil if there are none.
func (u *unsettled) err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.ids) > len(u.errs) {
		return fmt.Errorf("%d nodes: %w", len(u.ids), errors.Join(u.errs...))
	}
	return errors.Join(u.errs...)
}
