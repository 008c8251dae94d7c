package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	var errs []error
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
			again, errs = append(again, id), append(errs, fmt.Errorf("recheck %q: %w", id, err))
			continue
		}
		for _, c := range list {
			if !slices.Contains(live, c.fingerprint()) {
				sessions.end(c.number)
			}
		}
	}
	return again, errors.Join(errs...)
}
