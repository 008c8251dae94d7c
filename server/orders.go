package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"muster/internal/wire"
)

// Orders on disk.
//
// A command that the node accepts is an order in a file beside the set, synced
// before the provisioner hears of it. So whatever happens to the agent, the next
// one goes on with it: an order to reprovision leads to provisioning mode until
// another set is in force, one to reconfigure is asked for until it is, a restart
// has happened by then, and a shutdown happens then. The order goes when it is
// done, and its id stays, so that a command that comes again is not done again. A restart
// and a shutdown put one to reconfigure off, to the agent that is started after them.
//
// Every step may be the last. An agent that is killed after the switch and
// before the order is gone does it once more, which brings the same certificate
// and configuration, and costs a request.

// maxDone is how many ids of orders are remembered; chosen: a provisioner repeats
// a command within minutes.
const maxDone = 32

// An order is a command that was accepted and is yet to be done.
type order struct {
	ID   string    `json:"id"`
	Verb wire.Verb `json:"verb"`
}

// orders is what the file holds. The zero value is a node that was never
// commanded, and has no file.
type orders struct {
	Doing *order   `json:"doing,omitempty"` // nil for none; a later one takes its place
	Then  *order   `json:"then,omitempty"`  // nil for none; was to do when a restart or a shutdown came
	Done  []string `json:"done,omitempty"`  // ids of others, the newest last
}

// doing reports whether an order with this verb is yet to be done.
func (o *orders) doing(verb wire.Verb) bool { return o.Doing != nil && o.Doing.Verb == verb }

// has reports whether a command is known.
func (o *orders) has(id string) bool {
	return o.Doing != nil && o.Doing.ID == id || o.Then != nil && o.Then.ID == id || slices.Contains(o.Done, id)
}

// after returns the orders with another one to do, or the one that was put off, if any,
// if next is nil. None is put off but behind one with which the agent ends.
func (o *orders) after(next *order) orders {
	done := slices.Clone(o.Done)
	if o.Doing != nil {
		done = append(done, o.Doing.ID)
	}
	if next == nil {
		next = o.Then
	}
	return orders{Doing: next, Done: done[max(0, len(done)-maxDone):]}
}

// before returns the orders with another one to do first.
func (o *orders) before(first *order) orders {
	return orders{Doing: first, Then: o.Doing, Done: o.Done}
}

// loadOrders reads the orders. A file that cannot be read is none: what it held
// can be ordered again.
func (s *Server) loadOrders(ctx context.Context) {
	s.orders = orders{}
	b, err := readBounded(s.at.orders, 16<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = wire.DecodeStrict(b, &s.orders)
	}
	if err != nil {
		s.orders = orders{}
		s.cfg.Log.WarnContext(ctx, "orders not read, and dropped", "path", s.at.orders, "err", err)
	}
}

// writeOrders puts orders on disk, and then in force. After an error those
// before are in force, and in the file as well, or the error says that they are not.
func (s *Server) writeOrders(o orders) error {
	if err := s.replaceOrders(o); err != nil {
		return err
	}
	if err := s.sync(s.at.parent); err != nil {
		// The file is the new one, whether it outlives a power cut or not: the next
		// agent would do what was refused.
		if bad := s.replaceOrders(s.orders); bad != nil {
			err = fmt.Errorf("%w, and the next agent may do it: %w", err, bad)
		}
		return err
	}
	s.orders = o
	return nil
}

// replaceOrders writes the file, and leaves it as it was after an error.
func (s *Server) replaceOrders(o orders) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return writeFile(s.at.orders, append(b, '\n'), 0o600)
}

// accept puts an order on disk, in place of one that is not done yet. One with which the
// agent ends only comes before the other: the next agent goes on with that.
func (s *Server) accept(o order) error {
	next := s.orders.after(&o)
	if (o.Verb == wire.VerbRestart || o.Verb == wire.VerbShutdown) && s.orders.doing(wire.VerbReconfigure) {
		next = s.orders.before(&o)
	}
	if err := s.writeOrders(next); err != nil {
		return err
	}
	s.step("ordered")
	return nil
}

// obeyed says that orders with these verbs are done, or not to be done any more. On a
// full disk the file goes, with the ids of what was done: they are worth less than a node
// that would shut down at each start. An order that cannot be taken off the disk is done
// again by the next agent.
func (s *Server) obeyed(ctx context.Context, verbs ...wire.Verb) {
	if s.orders.Doing == nil || !slices.Contains(verbs, s.orders.Doing.Verb) {
		return
	}
	o := s.orders.after(nil)
	err := s.writeOrders(o)
	if err != nil && o.Doing == nil && os.Remove(s.at.orders) == nil {
		err = s.sync(s.at.parent)
	}
	if err != nil {
		s.orders = o
		s.cfg.Log.WarnContext(ctx, "order stays on disk", "path", s.at.orders, "err", err)
		return
	}
	s.orders = o
	s.step("order done")
}

// resume looks after an order that an agent before this one has left. The error
// is errStopped if it is to stop.
func (s *Server) resume(ctx context.Context) error {
	s.loadOrders(ctx)
	if s.orders.Doing == nil {
		_ = os.Remove(tempName(s.at.orders)) // of an agent that was killed while it wrote; usually there is none
		return nil
	}
	verb := s.orders.Doing.Verb
	s.cfg.Log.InfoContext(ctx, "command found", "verb", string(verb), "command", s.orders.Doing.ID)
	s.obeyed(ctx, wire.VerbRestart, wire.VerbShutdown)
	if verb == wire.VerbShutdown {
		return errStopped
	}
	return nil
}
