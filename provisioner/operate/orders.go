// Package operate carries out orders of operators, for the HTTPS API, the console and the commands. An order is one
// entry, written by compare-and-set on the state that it was decided on, and one event that names the operator.
//
// Unless a comment says otherwise: a written order is in force in this process at once and everywhere within a second;
// after an unnamed error it may have been written; repeating it is harmless.
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
	Provisioner *provisioner.Provisioner // required

	// Command sends a command to its node, authenticated by key; see [Nodes.Command] for its errors. Nil: no node can
	// be reached.
	Command func(ctx context.Context, c wire.Command, key []byte) (*wire.CommandAccepted, error)

	// Choria is nil without a gateway for Choria servers.
	Choria ChoriaFleet
}

// Orders groups the orders by subject. It is safe for concurrent use.
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

// New returns the orders of a provisioner.
func New(cfg Config) *Orders {
	own := cfg.Provisioner.Config()
	b := &base{
		provisioner: cfg.Provisioner,
		cfg:         own,
		store:       own.Store,
		logs:        own.Store.Logs(),
		log:         own.Log,
	}
	if cfg.Command == nil {
		cfg.Command = func(context.Context, wire.Command, []byte) (*wire.CommandAccepted, error) {
			return nil, ErrNodeAway
		}
	}
	return &Orders{
		Nodes:     &Nodes{base: b, command: cfg.Command, choria: cfg.Choria},
		Keys:      &Keys{base: b},
		AllowList: &AllowList{base: b},
		Pauses:    &Pauses{base: b},
		Operators: &Operators{base: b},
		Signers:   &Signers{base: b},
		Tokens:    &Tokens{base: b},
		Recovery:  &Recovery{base: b},
		Process:   &Process{base: b},
	}
}

type base struct {
	provisioner *provisioner.Provisioner
	cfg         provisioner.Config
	store       provisioner.Store
	logs        *orders.Logs
	log         *slog.Logger
}

// now is the time of an entry, to the second.
func (b *base) now() time.Time { return b.cfg.Now().UTC().Truncate(time.Second) }

// moment is the time of an event; milliseconds keep the order of events.
func (b *base) moment() time.Time { return b.cfg.Now().UTC().Truncate(time.Millisecond) }

func wrong(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return &provisioner.OrderError{Err: err}
	}
	return nil
}

// judge returns an order's error if no node may have the name.
func (b *base) judge(id wire.Identity) error {
	return wrong(b.cfg.Reserved(string(id), nil))
}

func about(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}

// event returns the event of an order. Call it before the write, so that consequences are later.
func (b *base) event(t events.Type, c trust.Cause) events.Event {
	return events.Event{Type: t, Time: b.moment(), By: c.By, Why: c.Why}
}

func (b *base) report(ctx context.Context, msg string, e events.Event, attrs ...any) {
	b.cfg.Emit(e)
	b.log.InfoContext(ctx, msg, append(attrs, "by", e.By, "why", e.Why)...) //nolint:sloglint // callers have literals
}

// maxOrderID bounds an id from a caller; generated ids have 22 letters.
const maxOrderID = 64

func checkOrderID(id string) error {
	if len(id) > maxOrderID || !utf8.ValidString(id) { // JSON would alter invalid UTF-8
		return fmt.Errorf("an id of %d bytes, want %d of UTF-8 at most", len(id), maxOrderID)
	}
	return nil
}

func changedMeanwhile(err error) error {
	if errors.Is(err, trust.ErrConflict) {
		return fmt.Errorf("%w: it was changed meanwhile: look at it, and order again (%w)", trust.ErrState, err)
	}
	return err
}
