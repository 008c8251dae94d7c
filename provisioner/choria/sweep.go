package choria

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// forgetAfter is how long an exchange without progress is kept, and the alarm about its server stands. A server that
// comes back later, without its former key, needs a grant.
const forgetAfter = 30 * 24 * time.Hour

// contestedFor is how long the alarm about a contested name stands; the event stays.
const contestedFor = 24 * time.Hour

// maxNamed bounds the servers that the alarm names.
const maxNamed = 5

// sweep ends the leases that are of no more use, and raises the alarm about servers that did not come back.
func (g *Gateway) sweep(ctx context.Context) {
	if at := g.contestedAt.Load(); at != nil && g.cfg.Now().Sub(*at) > contestedFor {
		g.cfg.Alarms.Set(ctx, events.AlarmContested, nil)
	}
	var lost []string
	err := g.cfg.Leases.Leases(ctx, func(l *provisioner.Lease, at trust.Revision) error {
		if l.Site != g.cfg.Site {
			return nil
		}
		now, restarted, due := g.cfg.Now(), !l.Restarted.IsZero(), l.Until.Add(g.cfg.Connection)
		if restarted {
			due = l.Restarted.Add(g.cfg.ComeBack)
		}
		if now.Before(due) {
			return nil
		}
		// A node that was retired, revoked or enrolled with another key is not waited for.
		known, err := g.hasRecord(ctx, l)
		if err != nil || !known || now.Sub(due) > forgetAfter {
			return g.drop(ctx, l, at, err)
		}
		if !restarted {
			return nil
		}
		open, err := g.cfg.Connected(ctx, l.Connection)
		if err != nil || !open && !g.followsFleet() {
			return g.drop(ctx, l, at, err) // it has left, and nothing tells whether it arrived
		}
		lost = append(lost, fmt.Sprintf("%s (told to restart %v ago; settings that differ from those of the last "+
			"server that came back: %s)", l.Identity, now.Sub(l.Restarted).Truncate(time.Second), g.difference(l)))
		return nil
	})
	switch {
	case err != nil:
		g.cfg.Log.WarnContext(ctx, "leases of Choria servers not read", "err", err)
	case len(lost) == 0:
		g.cfg.Alarms.Set(ctx, events.AlarmNotBack, nil)
	default:
		g.cfg.Alarms.Set(ctx, events.AlarmNotBack, fmt.Errorf("%d Choria servers have their configuration and are "+
			"not back: %s", len(lost), strings.Join(lost[:min(len(lost), maxNamed)], ", ")))
	}
}

// drop removes a lease unless err says that its state is unknown. Repeating it is harmless.
func (g *Gateway) drop(ctx context.Context, l *provisioner.Lease, at trust.Revision, err error) error {
	if err != nil {
		return err
	}
	return g.cfg.Leases.DropLease(ctx, l.Identity, at)
}

// hasRecord reports whether the lease's key may have a certificate.
func (g *Gateway) hasRecord(ctx context.Context, l *provisioner.Lease) (bool, error) {
	key, err := keyOf(l, &provisioner.Edge{})
	if err != nil || key == "" {
		return false, nil //nolint:nilerr // a key that cannot be read has no certificate
	}
	return g.cfg.Provisioner.HasKey(ctx, l.Identity, key)
}

// difference names the settings, not the values.
func (g *Gateway) difference(l *provisioner.Lease) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.returned == nil {
		return "none came back since this provisioner started"
	}
	var names []string
	for _, key := range slices.Sorted(maps.Keys(l.Settings)) {
		if key != "identity" && g.returned[key] != l.Settings[key] {
			names = append(names, key)
		}
	}
	return cmp.Or(strings.Join(names, " "), "none")
}

// back notes that a server is in its fleet.
func (g *Gateway) back(ctx context.Context, id wire.Identity) error {
	l, at, err := g.cfg.Leases.Lease(ctx, id)
	if err != nil || l == nil || l.Restarted.IsZero() {
		return err
	}
	g.mu.Lock()
	g.returned = l.Settings
	g.mu.Unlock()
	g.cfg.Log.InfoContext(ctx, "server is back in its Choria fleet", "node", id,
		"elapsed", g.cfg.Now().Sub(l.Restarted))
	return g.cfg.Leases.DropLease(ctx, id, at)
}

// followsFleet reports whether events of the fleet say which servers are back.
func (g *Gateway) followsFleet() bool { return g.fleet.Load() != nil && !g.deaf.Load() }
