package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"
)

// A configuration may name brokers that are not there: a slip in a policy, and the
// whole fleet is where nobody reaches it. So a set comes with a file that says that
// it is untried, which goes when one of its brokers has taken the node. A node whose
// set is untried, and that has reached no broker for [Config.RefusedLimit], tries
// those of its token as well: there it can be told what is right. It proves itself
// there, and has them prove themselves, as with its own. It looks for its own again
// after the same time.
//
// What was reached once is only away: the node waits for it, and does not fall upon
// the brokers that others are provisioned at.

const untriedText = "No broker of this configuration has taken the node yet. Until one has, the agent tries those of its token, too.\n"

const msgStray = "no broker of the configuration was ever reached, one of the token's takes the node"

// reachAny connects to a broker of the configuration, or else to one of the token's
// where that is in order; then n.stray says until when.
func (n *duty) reachAny(ctx context.Context) (*connection, error) {
	n.stray, n.astray = time.Time{}, nil
	if n.unreached.IsZero() {
		n.unreached = time.Now()
	}
	conn, err := n.reach(ctx, n.view)
	if err == nil {
		n.unreached = time.Time{}
		n.once.solved(msgStray)
		n.tried(ctx)
		return conn, nil
	}
	if time.Since(n.unreached) < n.cfg.RefusedLimit || refusedByBroker(err) || !exists(n.at.in(untriedFile)) {
		return nil, err
	}
	other := n.reachToken(ctx)
	if other == nil {
		return nil, err
	}
	n.stray, n.astray = time.Now().Add(n.cfg.RefusedLimit), err
	n.observe(Event{Kind: EventFailed, Err: err})
	n.once.problem(ctx, n.cfg.Log, slog.LevelWarn, msgStray,
		&cause{what: err, remedy: "have the policy name brokers that are there, then `muster node reconfigure " + string(n.identity) + "`"}, "node", n.identity, "broker", other.broker)
	return other, nil
}

// strayed reports whether the node has been with a broker of the token for long
// enough to look for its own again.
func (n *duty) strayed() bool { return !n.stray.IsZero() && !time.Now().Before(n.stray) }

// saysAstray tells the provisioner why the node is not where its configuration says. Until
// that is confirmed there is nothing to say it of.
func (n *duty) saysAstray(ctx context.Context, conn *connection) {
	if !n.come(n.nextAstray) {
		return
	}
	if p, err := n.readConfirmation(confirmedFile); err == nil && p != nil {
		err := n.complain(ctx, conn, n.creds.key, *p, fmt.Errorf("no broker of the configuration was ever reached: %w", n.astray))
		n.nextAstray = n.in(max(n.cfg.BackoffMax, slowedBy(err))) // the whole fleet may say so, to who is busy with it
	}
}

// reachToken connects to a broker of the token, or returns nil if none takes the
// node, or they are those of the configuration.
func (n *duty) reachToken(ctx context.Context) *connection {
	urls, srv := n.fleetBrokers(n.view)
	if n.token == nil || slices.Equal(urls, n.token.urls) && srv == n.token.srv {
		return nil
	}
	conn, err := n.reachAt(ctx, n.view, n.token.urls, n.token.srv)
	if err != nil {
		n.cfg.Log.DebugContext(ctx, "no broker of the token takes the node either", "node", n.identity, "err", err)
		return nil
	}
	return conn
}

// tried notes that the brokers of the configuration are right. If that does not get
// to the disk, it does with the next connection.
func (s *Server) tried(ctx context.Context) {
	err := os.Remove(s.at.in(untriedFile))
	if !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Log.DebugContext(ctx, "configuration tried, a broker is reached", "err", err)
	}
}
