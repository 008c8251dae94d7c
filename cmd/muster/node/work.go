package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner"
)

// work is what an order is to do, as its file of --progress has it: in its first line all but what is done, and
// then a line for each machine that is done. A line that is lost with the process costs one more request, which
// is harmless: what is ordered twice is done twice.
type work struct {
	ID    string          `json:"id"` // of the commands
	Verb  string          `json:"verb"`
	Why   string          `json:"why,omitempty"`
	Nodes []wire.Identity `json:"nodes"`

	// SeenBefore is since when a node that was chosen by --unseen had not been heard of.
	SeenBefore time.Time `json:"seen_before,omitzero"`

	// Seen is what the list showed of the nodes that a filter chose; nil if names were given.
	Seen map[wire.Identity]provisioner.Seen `json:"seen,omitempty"`

	counts  map[provisioner.State]int // of the nodes, if a filter chose them
	resumed bool
	file    *os.File // nil if nothing is kept
}

// text says how many machines there are, by state, and the first names.
func (w *work) text() string {
	const shown = 10
	list := verb.Joined(w.Nodes[:min(shown, len(w.Nodes))])
	if more := len(w.Nodes) - shown; more > 0 {
		list += fmt.Sprintf(", and %d more", more)
	}
	var states []string
	for state, n := range w.counts {
		states = append(states, fmt.Sprintf("%d %s", n, state))
	}
	slices.Sort(states)
	of := ""
	if len(states) > 0 {
		of = " (" + strings.Join(states, ", ") + ")"
	}
	return fmt.Sprintf("%s%s: %s", verb.Machines(len(w.Nodes)), of, list)
}

// readWork reads what an order before this one has left.
func readWork(path, verb string) (*work, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such file: give the one that an order named when it ended; there is none of an order of which nothing is left", path)
	}
	if err != nil {
		return nil, err
	}
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	w := &work{}
	if err := wire.DecodeStrict(first, w); err != nil {
		return nil, fmt.Errorf("%s is no file of --progress: %w", path, err)
	}
	if w.Verb != verb {
		return nil, fmt.Errorf("%s is of `muster node %s`", path, w.Verb)
	}
	done := map[wire.Identity]bool{}
	for line := range strings.Lines(string(rest)) {
		if name, whole := strings.CutSuffix(line, "\n"); whole { // half a line is of a process that was killed
			done[wire.Identity(name)] = true
		}
	}
	// Under another id: a node that was told by the order before may have been refused since.
	w.ID, w.resumed = wire.NewID(), true
	w.Nodes = slices.DeleteFunc(w.Nodes, func(id wire.Identity) bool { return done[id] })
	return w, nil
}

// keep begins the file, anew with what is left if the order is resumed. There is none for "".
func (w *work) keep(path string) error {
	if path == "" {
		return nil
	}
	head, err := json.Marshal(w)
	if err != nil {
		return err
	}
	err = cli.WriteNew(path, append(head, '\n'), 0o600, w.resumed)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("--progress: %s: %w: give a new file, or go on with what it keeps by --resume", path, fs.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("%w: the progress is kept there, name another file with --progress", err)
	}
	w.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	return err
}

// done keeps that a machine needs nothing more.
func (w *work) done(id wire.Identity) error {
	if w.file == nil {
		return nil
	}
	_, err := w.file.WriteString(string(id) + "\n")
	return err
}

// close ends the file, and removes it if nothing is left.
func (w *work) close(nothingLeft bool) error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	if nothingLeft {
		err = errors.Join(err, os.Remove(w.file.Name()))
	}
	return err
}
