// Package orders keeps accepted commands on disk, so that each is carried out once, even after a crash.
package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/server/files"
)

// A provisioner repeats a command within minutes.
const maxDone = 32

// An Order is an accepted command that is not yet carried out.
type Order struct {
	ID   string    `json:"id"`
	Verb wire.Verb `json:"verb"`
}

// Orders are the commands that the node has accepted. They are durable before the provisioner gets the answer. An order
// to reprovision or reconfigure is open until another set is in force. A restart or shutdown is finished at once, since
// the agent ends. Ids of finished orders are kept, so that a repeated command is not carried out again.
//
// If the agent is killed between a switch and the end of the order, the next agent repeats it and gets the same
// certificate and configuration.
type Orders struct {
	path    string
	sync    func(dir string) error
	step    func(name string)
	content fileContent
}

type fileContent struct {
	Open     *Order   `json:"doing,omitempty"` // nil: none; a later order replaces it
	Finished []string `json:"done,omitempty"`  // ids of finished commands, the newest last
}

// New does not read the file. After a change, sync makes the file's name durable, and step is called.
func New(path string, sync func(dir string) error, step func(name string)) *Orders {
	return &Orders{path: path, sync: sync, step: step}
}

// Path returns the file of the orders.
func (o *Orders) Path() string { return o.path }

// IsOpen reports whether an order with this verb is open.
func (o *Orders) IsOpen(verb wire.Verb) bool {
	return o.content.Open != nil && o.content.Open.Verb == verb
}

// Has reports whether the order with this id is open or finished.
func (o *Orders) Has(id string) bool {
	return o.content.Open != nil && o.content.Open.ID == id || slices.Contains(o.content.Finished, id)
}

// Load reads the file. If it is unreadable, its orders are lost; operators can order again.
func (o *Orders) Load() error {
	b, err := inputfile.Read(o.path, inputfile.Configured, 16<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var read fileContent
	if err == nil {
		err = wire.DecodeStrict(b, &read)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.path, err)
	}
	o.content = read
	return nil
}

// Accept writes a command to disk. After an error it is not accepted.
func (o *Orders) Accept(c Order) error {
	next := fileContent{Open: &c, Finished: o.content.Finished}
	if c.Verb == wire.VerbRestart || c.Verb == wire.VerbShutdown {
		next = o.content.with(c.ID)
	} else if o.content.Open != nil {
		next = o.content.with(o.content.Open.ID)
		next.Open = &c
	}
	if err := o.write(next); err != nil {
		// the new file may be in place already, and the next agent must not carry out a refused command
		_ = o.write(o.content)
		return err
	}
	o.content = next
	o.step("ordered")
	return nil
}

// Finish records that an order with one of these verbs is finished. After an error the next agent repeats it.
func (o *Orders) Finish(verbs ...wire.Verb) error {
	if o.content.Open == nil || !slices.Contains(verbs, o.content.Open.Verb) {
		return nil
	}
	o.content = o.content.with(o.content.Open.ID)
	o.content.Open = nil
	if err := o.write(o.content); err != nil {
		return err
	}
	o.step("order done")
	return nil
}

func (b fileContent) with(id string) fileContent {
	done := append(slices.Clone(b.Finished), id)
	return fileContent{Open: b.Open, Finished: done[max(0, len(done)-maxDone):]}
}

func (o *Orders) write(b fileContent) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := files.Replace(o.path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return o.sync(filepath.Dir(o.path))
}
