// Package operate is what operators order: which keys that wait are let in, which names may enroll, which other key may
// take a name, when nobody enrolls, and what a node is to do. Each order is one entry, written under compare-and-set on
// what it was decided on, and an event that names the operator. What an enrollment reads of it is in package
// provisioner. All edges, the HTTPS API, the console and the command, order through it.
package operate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
)

// Config configures [New].
type Config struct {
	Provisioner *provisioner.Provisioner // which the orders are given to; required

	// Command sends a command to its node, proven by the key; see [Nodes.Command] for its errors. Nil: no node can be
	// reached.
	Command func(ctx context.Context, c wire.Command, key []byte) (*wire.Obeyed, error)
}

// Orders are what operators may order, by what it is about. They keep no state: what was ordered is in the store. They
// are safe for concurrent use.
type Orders struct {
	Nodes     *Nodes
	Keys      *Keys
	AllowList *AllowList
	Pauses    *Pauses
	Operators *Operators
	Signers   *Signers
	Tokens    *Tokens
	Recovery  *Recovery
	Process   *Process
}

// New returns the orders that are given to a provisioner.
func New(cfg Config) *Orders {
	own := cfg.Provisioner.Config()
	b := &base{
		provisioner: cfg.Provisioner,
		store:       own.Store,
		logs:        own.Store.Logs(),
		emit:        own.Emit,
		log:         own.Log,
		clock:       own.Now,
	}
	if cfg.Command == nil {
		cfg.Command = func(context.Context, wire.Command, []byte) (*wire.Obeyed, error) { return nil, ErrNodeAway }
	}
	return &Orders{
		Nodes:     &Nodes{base: b, command: cfg.Command, tokens: own.Tokens},
		Keys:      &Keys{base: b},
		AllowList: &AllowList{base: b},
		Pauses:    &Pauses{base: b},
		Operators: &Operators{base: b, cfg: own},
		Signers:   &Signers{base: b, signers: own.Signers},
		Tokens:    &Tokens{base: b, verifier: own.Tokens},
		Recovery:  &Recovery{base: b},
		Process:   &Process{base: b, cfg: own},
	}
}

// base is what every order needs.
type base struct {
	provisioner *provisioner.Provisioner
	store       provisioner.Store
	logs        *orders.Logs
	emit        func(events.Event)
	log         *slog.Logger
	clock       func() time.Time
}

// now is the time of an entry: UTC, to the second.
func (b *base) now() time.Time { return b.clock().UTC().Truncate(time.Second) }

// moment is the time of an event, which is finer: events of one second are read in their order.
func (b *base) moment() time.Time { return b.clock().UTC().Truncate(time.Millisecond) }

// wrong returns what is wrong with an order as a [provisioner.OrderError], nil if nothing is.
func wrong(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return &provisioner.OrderError{Err: err}
	}
	return nil
}

// about puts in front of an error what the order was.
func about(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}

// event returns the event of an order, which is reported once the order is in the store. Its time is now, since what
// comes of the order is later.
func (b *base) event(t events.Type, c trust.Cause) events.Event {
	return events.Event{Type: t, Time: b.moment(), By: c.By, Why: c.Why}
}

// report emits the event of an order that is in the store, and logs it with the attributes attrs.
func (b *base) report(ctx context.Context, msg string, e events.Event, attrs ...any) {
	b.emit(e)
	b.log.InfoContext(ctx, msg, append(attrs, "by", e.By, "why", e.Why)...) //nolint:sloglint // callers have literals
}

// maxOrderID bounds an id that a caller has made; ours have 22 letters.
const maxOrderID = 64

// checkOrderID reports what about the id of an order cannot be. Empty is none, and may be.
func checkOrderID(id string) error {
	if len(id) > maxOrderID || !utf8.ValidString(id) { // a repeated order would not be known by it
		return fmt.Errorf("an id of %d bytes, want %d of UTF-8 at most", len(id), maxOrderID)
	}
	return nil
}

// changedMeanwhile says to an operator what a conflict means; nil stays nil.
func changedMeanwhile(err error) error {
	if errors.Is(err, trust.ErrConflict) {
		return fmt.Errorf("%w: it was changed meanwhile: look at it, and ask again (%w)", trust.ErrState, err)
	}
	return err
}
