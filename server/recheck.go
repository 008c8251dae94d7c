package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"muster/internal/wire"
)

// Whether what is in force is what is on record.
//
// A machine that is put back, as to a snapshot of a week ago, has the set of then. If it has
// renewed since, brokers refuse that, and it enrolls again. But another configuration comes
// with the same key and certificate: they take it, and it would run the old one until its
// next renewal. So what was confirmed stays beside the set, and each agent confirms it once
// more: a provisioner acknowledges what is on record, and does not know what is not. Then
// the node asks for its configuration as if it had been told to.
//
// Every step may be the last: what is on disk is confirmed once more by the next agent.

// recheckEvery is when an agent that goes on confirms once more: the memory of a machine may
// be put back with its disk. Chosen; its clock is ahead of what was put off then.
const recheckEvery = 7 * 24 * time.Hour

// keepConfirmed records that there is nothing left to confirm, and what that was. It is not
// synced: a power failure that brings the file back costs one confirmation more, which is
// acknowledged like the first. Where the name cannot be had, nothing is confirmed once more.
func (s *Server) keepConfirmed() error {
	err := os.Rename(s.at.in(appliedFile), s.at.in(confirmedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.dropPending()
	}
	s.step("confirmed")
	return nil
}

// recheck confirms once more what is in force. While something else is about to be in force,
// that is confirmed instead.
func (n *duty) recheck(ctx context.Context, conn *connection) {
	n.nextRecheck = n.in(max(n.aliveEvery, n.cfg.BackoffMax))
	if n.orders.Doing != nil || n.renewalBegun() || exists(n.at.in(appliedFile)) {
		return
	}
	p, err := n.readConfirmation(confirmedFile)
	if err != nil || p == nil || strings.TrimLeft(p.Serial, "0") != strings.TrimLeft(n.creds.serial, "0") {
		n.nextRecheck = n.in(recheckEvery) // of an agent of before, or damaged: nothing is known of it
		return
	}
	_, err = n.sendConfirmation(ctx, conn, n.creds.key, *p)
	switch {
	case err == nil:
		n.nextRecheck = n.in(recheckEvery)
	case errors.Is(err, errDisowned):
		if err := n.accept(order{ID: wire.NewID(), Verb: wire.VerbReconfigure}); err != nil {
			n.cfg.Log.WarnContext(ctx, "order not written", "node", n.identity, "err", err, "remedy", remedyOf(explain(err, peer{})))
			return
		}
		n.commands.next = deadline{}
		n.nextRecheck = n.in(recheckEvery)
		n.cfg.Log.WarnContext(ctx, "configuration in force is not the one on record, and is asked for once more", "node", n.identity, "serial", p.Serial,
			"err", err, "remedy", "nothing; a disk that was put back is the usual cause")
	default:
		n.cfg.Log.DebugContext(ctx, "configuration in force not compared", "node", n.identity, "err", err)
	}
}
