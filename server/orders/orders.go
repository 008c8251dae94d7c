// Package orders keeps the commands that a node has accepted on disk, so that
// each is done once, also by the agent after one that was killed.
package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"muster/internal/wire"
	"muster/server/files"
)

// maxDone is how many ids of commands are remembered; a provisioner repeats a
// command within minutes.
const maxDone = 32

// An Order is a command that was accepted and is yet to be done.
type Order struct {
	ID   string    `json:"id"`
	Verb wire.Verb `json:"verb"`
}

// Orders are the commands that the node has accepted. They are in a file that is
// synced before the provisioner hears of it: one to reprovision leads to
// provisioning mode until another set is in force, one to reconfigure is asked
// for until it is, and the id of a command stays, so that it is not done again
// when it comes again. A restart and a shutdown count as done with their
// acceptance, since the agent ends at once, and leave an order that is yet to be
// done to the next agent.
//
// An agent that is killed after a switch and before the order is gone does it
// once more, which brings the same certificate and configuration.
type Orders struct {
	path string
	sync func(dir string) error
	step func(name string)
	book book
}

// A book is what the file holds.
type book struct {
	Doing *Order   `json:"doing,omitempty"` // nil for none; a later one takes its place
	Done  []string `json:"done,omitempty"`  // ids of others, the newest last
}

// New returns the orders in a file, which is not read yet. After a change sync
// makes its name durable, and step is called.
func New(path string, sync func(dir string) error, step func(name string)) *Orders {
	return &Orders{path: path, sync: sync, step: step}
}

// Path is the file.
func (o *Orders) Path() string { return o.path }

// Doing reports whether an order with this verb is yet to be done.
func (o *Orders) Doing(verb wire.Verb) bool { return o.book.Doing != nil && o.book.Doing.Verb == verb }

// Has reports whether a command is known.
func (o *Orders) Has(id string) bool {
	return o.book.Doing != nil && o.book.Doing.ID == id || slices.Contains(o.book.Done, id)
}

// Load reads the orders. A file that cannot be read is none: what it held can be
// ordered again.
func (o *Orders) Load() error {
	b, err := files.Read(o.path, 16<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var read book
	if err == nil {
		err = wire.DecodeStrict(b, &read)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.path, err)
	}
	o.book = read
	return nil
}

// Accept puts a command on disk. After an error it is not accepted.
func (o *Orders) Accept(c Order) error {
	next := book{Doing: &c, Done: o.book.Done}
	if c.Verb == wire.VerbRestart || c.Verb == wire.VerbShutdown {
		next = o.book.with(c.ID)
	} else if o.book.Doing != nil {
		next = o.book.with(o.book.Doing.ID)
		next.Doing = &c
	}
	if err := o.write(next); err != nil {
		_ = o.write(o.book) // the file may be the new one already, and the next agent would do what is refused
		return err
	}
	o.book = next
	o.step("ordered")
	return nil
}

// Obeyed says that orders with these verbs are done, or not to be done any more.
// After an error the next agent does it once more.
func (o *Orders) Obeyed(verbs ...wire.Verb) error {
	if o.book.Doing == nil || !slices.Contains(verbs, o.book.Doing.Verb) {
		return nil
	}
	o.book = o.book.with(o.book.Doing.ID)
	o.book.Doing = nil
	if err := o.write(o.book); err != nil {
		return err
	}
	o.step("order done")
	return nil
}

// with returns the book with one more id that is done.
func (b book) with(id string) book {
	done := append(slices.Clone(b.Done), id)
	return book{Doing: b.Doing, Done: done[max(0, len(done)-maxDone):]}
}

func (o *Orders) write(b book) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := files.Replace(o.path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return o.sync(filepath.Dir(o.path))
}
