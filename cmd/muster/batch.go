package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/cli"
	"muster/internal/wire"
)

// A batch says how a verb goes over many machines.
type batch struct {
	size        int
	pause       time.Duration
	maxFailures int
	file        string // keeps the progress; empty for a name of its own
}

// check reports values that make no sense.
func (b *batch) check() error {
	if b.size < 1 || b.size > 1000 || b.pause < 0 || b.maxFailures < 0 {
		return fmt.Errorf("--batch %d, --pause-between %v, --max-failures %d: want 1 to 1000, and 0 or more", b.size, b.pause, b.maxFailures)
	}
	return nil
}

// A campaign is what a verb over many machines is to do and has done. Its file has
// all but Done in its first line, and a line for each machine that is done. A
// line that is lost with the process costs a command that the machine knows
// already: all have one id, and it is done once.
type campaign struct {
	ID    string          `json:"id"`
	Verb  wire.Verb       `json:"verb"`
	Nodes []wire.Identity `json:"nodes"`

	done map[wire.Identity]bool
}

// left returns the machines that are not done, in order.
func (p *campaign) left() []wire.Identity {
	var left []wire.Identity
	for _, id := range p.Nodes {
		if !p.done[id] {
			left = append(left, id)
		}
	}
	return left
}

// readProgress reads what a verb before this one has left.
func readProgress(path string, verb wire.Verb) (*campaign, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	p := &campaign{done: map[wire.Identity]bool{}}
	if err := wire.DecodeStrict(first, p); err != nil {
		return nil, fmt.Errorf("%s is no file of --progress: %w", path, err)
	}
	if p.Verb != verb {
		return nil, fmt.Errorf("%s is of `muster node %s`", path, p.Verb)
	}
	for line := range strings.Lines(string(rest)) {
		if name, whole := strings.CutSuffix(line, "\n"); whole { // half a line is of a process that was killed
			p.done[wire.Identity(name)] = true
		}
	}
	return p, nil
}

// A batchResult says what has become of the machines.
type batchResult struct {
	ID     string         `json:"id"` // of the command
	Done   int            `json:"done"`
	Failed []batchFailure `json:"failed,omitempty"`
	Left   int            `json:"left,omitempty"`   // neither: it was stopped before
	Resume string         `json:"resume,omitempty"` // file to go on with
}

// A batchFailure is a machine that could not be commanded.
type batchFailure struct {
	Node  wire.Identity `json:"node"`
	Cause string        `json:"cause"`
}

// run does one for each machine that is left. The result is never nil; the error
// says that some have failed or were not tried.
func (b *batch) run(ctx context.Context, p *campaign, one func(context.Context, wire.Identity) error) (*batchResult, error) {
	left := p.left()
	result := &batchResult{ID: p.ID}
	keep, err := b.open(p)
	if err != nil {
		result.Left = len(left)
		return result, err
	}
	bar := cli.NewProgress(os.Stderr, string(p.Verb), len(left))
	var mu sync.Mutex // guards result
	for group := range slices.Chunk(left, b.size) {
		if ctx.Err() != nil || len(result.Failed) > b.maxFailures {
			break
		}
		if result.Done+len(result.Failed) > 0 && !sleep(ctx, b.pause) {
			break
		}
		var g errgroup.Group
		for _, id := range group {
			g.Go(func() error {
				err := one(ctx, id)
				mu.Lock()
				defer mu.Unlock()
				bar.Add(1)
				if err != nil {
					result.Failed = append(result.Failed, batchFailure{id, err.Error()})
					return nil
				}
				result.Done++
				return keep(string(id) + "\n")
			})
		}
		if err = g.Wait(); err != nil {
			break
		}
	}
	bar.Done()
	return result, errors.Join(err, ctx.Err(), b.close(result, len(left)))
}

// close ends the progress: with no file if all is done.
func (b *batch) close(r *batchResult, of int) error {
	r.Left = of - r.Done - len(r.Failed)
	if r.Done == of {
		if b.file == "" {
			return nil
		}
		return os.Remove(b.file)
	}
	r.Resume = b.file
	if of == 1 && b.file == "" {
		return errors.New("not done")
	}
	return fmt.Errorf("%d machines failed and %d were not tried: go on with --resume %s", len(r.Failed), r.Left, b.file)
}

// open begins the file of the progress, or goes on with it. keep adds to it.
func (b *batch) open(p *campaign) (keep func(string) error, err error) {
	if b.file == "" && len(p.Nodes) == 1 {
		return func(string) error { return nil }, nil
	}
	if b.file == "" {
		b.file = "muster-" + string(p.Verb) + "-" + p.ID[:8] + ".progress"
	}
	if p.done == nil {
		head, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		f, err := os.OpenFile(b.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		_, err = f.Write(append(head, '\n'))
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return nil, err
		}
	}
	return func(line string) error {
		f, err := os.OpenFile(b.file, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(line)
		return errors.Join(err, f.Close())
	}, nil
}

// sleep waits, and reports false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// identitiesOf returns the machines that are named, and those of a file, each once
// and in order. The error lists every name that is none.
func identitiesOf(names []string, from string) ([]wire.Identity, error) {
	if from != "" {
		b, err := readFileOrInput(from)
		if err != nil {
			return nil, err
		}
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			if line := strings.TrimSpace(s.Text()); line != "" && !strings.HasPrefix(line, "#") {
				names = append(names, line)
			}
		}
	}
	var ids []wire.Identity
	var errs []error
	seen := map[wire.Identity]bool{}
	for _, name := range names {
		id, err := wire.ParseIdentity(name)
		if err != nil {
			errs = append(errs, err)
		} else if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s has no names", from)
	}
	return ids, nil
}

// readFileOrInput reads a file, or standard input for "-".
func readFileOrInput(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(path)
}

// errNotAgreed means that a person said no.
var errNotAgreed = errors.New("not done: nobody agreed")

// confirm asks a person, who has to answer y or yes.
func confirm(ctx context.Context, in io.Reader, out io.Writer, question string) error {
	if _, err := fmt.Fprintf(out, "%s [y/N] ", cli.Printable(question)); err != nil {
		return err
	}
	answered := make(chan string, 1)
	go func() { // ends with the process if nobody answers
		line, _ := bufio.NewReader(in).ReadString('\n')
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case answer := <-answered:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return errNotAgreed
	}
}
