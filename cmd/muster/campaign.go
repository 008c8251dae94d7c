package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

// A target is a machine that a verb touches.
type target struct {
	Node wire.Identity
	Key  string // SHA-256 of the key that is meant; empty where the name says enough
}

// MarshalText returns the form that a campaign's file has of it.
func (t target) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads that form.
func (t *target) UnmarshalText(text []byte) error {
	name, key, _ := strings.Cut(string(text), " ")
	id, err := wire.ParseIdentity(name)
	if err == nil && strings.Trim(key, "0123456789abcdef") != "" { // it is to be one line
		err = fmt.Errorf("key hash %.80q, want lower-case hex", key)
	}
	*t = target{Node: id, Key: key}
	return err
}

// String returns the name, and the key if that is needed.
func (t target) String() string { return strings.TrimSpace(string(t.Node) + " " + t.Key) }

// A campaign is what a verb over many machines is to do and has done. Its file has
// all but what is done in its first line, and a line for each machine that is
// done. A line that is lost with the process costs one more request, which is
// harmless: commands have one id and are done once, and what operators decide
// twice is decided.
type campaign struct {
	ID    string   `json:"id"` // of the commands
	Verb  string   `json:"verb"`
	Why   string   `json:"why,omitempty"`
	Nodes []target `json:"nodes"`

	// SeenBefore is since when a node that was chosen by --unseen had not been heard of.
	SeenBefore time.Time `json:"seen_before,omitzero"`

	// Seen is what the list showed of the nodes that a filter chose; nil if names were given.
	Seen map[wire.Identity]provisioner.Seen `json:"seen,omitempty"`

	done map[target]bool
}

// left returns the machines that are not done, in order.
func (p *campaign) left() []target {
	var left []target
	for _, t := range p.Nodes {
		if !p.done[t] {
			left = append(left, t)
		}
	}
	return left
}

// readProgress reads what a verb before this one has left.
func readProgress(path, verb string) (*campaign, error) {
	b, err := readNamesFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such file: give the one that an order named when it ended; there is none of an order of which nothing is left", path)
	}
	if err != nil {
		return nil, err
	}
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	p := &campaign{done: map[target]bool{}}
	if err := wire.DecodeStrict(first, p); err != nil {
		return nil, fmt.Errorf("%s is no file of --progress: %w", path, err)
	}
	if p.Verb != verb {
		return nil, fmt.Errorf("%s is of `muster node %s`", path, p.Verb)
	}
	for line := range strings.Lines(string(rest)) {
		var t target
		// Half a line is of a process that was killed.
		if text, whole := strings.CutSuffix(line, "\n"); whole && t.UnmarshalText([]byte(text)) == nil {
			p.done[t] = true
		}
	}
	return p, nil
}

// open begins the campaign's file, or goes on with it, and returns what adds a
// line to it. One machine that is not to be kept has none.
func (p *campaign) open(path string) (keep func(target) error, err error) {
	if path == "" {
		return func(target) error { return nil }, nil
	}
	if p.done == nil {
		head, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("--progress: %s: %w: give a new file, or go on with what it keeps by --resume", path, fs.ErrExist)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: the progress is kept there, name another file with --progress", err)
		}
		_, err = f.Write(append(head, '\n'))
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return nil, errors.Join(err, os.Remove(path)) // half of it is of no use, and in the way
		}
	} else if err := endLine(path); err != nil {
		return nil, err
	}
	return func(t target) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(t.String() + "\n")
		return errors.Join(err, f.Close())
	}, nil
}

// endLine ends the last line of a file if a process was killed while it wrote
// that, so that the next one is a line of its own.
func endLine(path string) error {
	b, err := os.ReadFile(path)
	if err != nil || bytes.HasSuffix(b, []byte("\n")) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	// Not the end alone: half a name could be another machine's. The first line is whole,
	// or it would not have been read.
	end := "#\n"
	if !bytes.Contains(b, []byte("\n")) {
		end = "\n"
	}
	_, err = f.WriteString(end)
	return errors.Join(err, f.Close())
}
