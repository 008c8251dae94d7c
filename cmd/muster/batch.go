package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sync/errgroup"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
)

// A batch says how a verb goes over many machines.
type batch struct {
	size        int
	pause       time.Duration
	maxFailures int
	file        string // keeps the progress; empty for a name of its own
}

func (b *batch) add(c *kingpin.CmdClause) {
	cli.Int(c.Flag("batch", "How many machines are in hand at once.").Default("50"), &b.size)
	c.Flag("pause-between", "Wait so long after each batch, as 10s.").Default("0s").SetValue((*pauseValue)(&b.pause))
	cli.Int(c.Flag("max-failures", "Stop once more machines than this have failed.").Default("10"), &b.maxFailures)
	c.Flag("progress", "File that keeps what is done; default a new one here for more than one machine.").PlaceHolder("FILE").StringVar(&b.file)
}

// pauseValue is a pause on a command line: a duration as everywhere, or less than a second
// as Go writes it, 500ms.
type pauseValue time.Duration

// Set implements [kingpin.Value]. What is below zero is for [batch.check] to refuse.
func (v *pauseValue) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		if d, err = cli.ParseDuration(text); err != nil {
			return fmt.Errorf("--pause-between: %w; want 0s or more", err)
		}
	}
	*v = pauseValue(d)
	return nil
}

// String implements [kingpin.Value].
func (v *pauseValue) String() string { return time.Duration(*v).String() }

// check reports values that make no sense.
func (b *batch) check() error {
	var errs []error
	if b.size < 1 || b.size > 1000 {
		errs = append(errs, fmt.Errorf("--batch is %d, want 1 to 1000", b.size))
	}
	if b.pause < 0 {
		errs = append(errs, fmt.Errorf("--pause-between is %v, want 0s or more", b.pause))
	}
	if b.maxFailures < 0 {
		errs = append(errs, fmt.Errorf("--max-failures is %d, want 0 or more", b.maxFailures))
	}
	return errors.Join(errs...)
}

// A batchResult says what has become of the machines.
type batchResult struct {
	ID     string         `json:"id"` // of the commands
	Verb   string         `json:"verb"`
	Chosen int            `json:"chosen"` // machines that were to be done
	Done   int            `json:"done"`
	Failed []batchFailure `json:"failed,omitempty"`
	Alone  []batchFailure `json:"left_alone,omitempty"` // not any more what they were chosen for: they are not tried again
	Left   int            `json:"left,omitempty"`       // neither: it was stopped before
	Resume string         `json:"resume,omitempty"`     // file to go on with
}

// text says how many are done, done being what each of them is now. One at least is.
func (r *batchResult) text(done string) string {
	of := counted(r.Chosen, "machine", "machines")
	switch {
	case r.Chosen == 1:
		return of + " " + done
	case r.Done == 1:
		return fmt.Sprintf("1 of %s %s", of, done)
	}
	return fmt.Sprintf("%d of %s: each %s", r.Done, of, done)
}

// missing says how many are not done, and why. One at least is not.
func (r *batchResult) missing() string {
	switch failed := counted(len(r.Failed), "machine failed", "machines failed"); {
	case r.Left == 0:
		return failed
	case len(r.Failed) == 0:
		return counted(r.Left, "machine was not tried", "machines were not tried")
	default:
		return failed + " and " + counted(r.Left, "was not tried", "were not tried")
	}
}

// A batchFailure is a machine for which it was not done, and why.
type batchFailure struct {
	Node  wire.Identity `json:"node"`
	Cause string        `json:"cause"`
}

// run does one for each machine that is left: as many at once as the batch has,
// the next as soon as one is done, or with a pause one batch after the other. The
// result is never nil; the error says that some have failed or were not tried.
func (b *batch) run(ctx context.Context, p *campaign, one func(context.Context, target) error) (*batchResult, error) {
	left := p.left()
	result := &batchResult{ID: p.ID, Verb: p.Verb, Chosen: len(left), Left: len(left)}
	if b.file == "" && len(p.Nodes) > 1 {
		b.file = "muster-" + p.Verb + "-" + p.ID[:8] + ".progress"
	}
	keep, err := p.open(b.file)
	if err != nil {
		return result, err
	}
	w := &worker{result: result, keep: keep, limit: b.maxFailures, bar: cli.NewProgress(os.Stderr, p.Verb, len(left))}
	together := b.size
	if b.pause == 0 {
		together = max(1, len(left))
	}
	first := true
	for group := range slices.Chunk(left, together) {
		if w.stopped() || !first && !sleep(ctx, b.pause) {
			break
		}
		first = false
		var g errgroup.Group
		g.SetLimit(b.size)
		for _, t := range group {
			if ctx.Err() != nil {
				break
			}
			g.Go(func() error {
				if !w.stopped() { // it has waited for room
					w.took(t, one(ctx, t), ctx)
				}
				return nil
			})
		}
		_ = g.Wait() // what failed is in the result
	}
	w.bar.Done()
	return result, errors.Join(w.err, ctx.Err(), b.close(result))
}

// A worker counts what comes of each machine.
type worker struct {
	keep  func(target) error
	limit int
	bar   *cli.Progress

	mu     sync.Mutex
	result *batchResult // guarded by mu
	err    error        // guarded by mu: the progress cannot be kept
}

// stopped reports whether no other machine is to be begun.
func (w *worker) stopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil || len(w.result.Failed) > w.limit
}

// took takes in what came of a machine. Of one that was interrupted nothing is
// known: it is left, and done again with the others.
func (w *worker) took(t target, err error, ctx context.Context) { //nolint:revive // ctx says what err is worth
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && ctx.Err() != nil {
		return
	}
	w.result.Left--
	w.bar.Add(1)
	var problem *httpapi.Problem
	if errors.As(err, &problem) && problem.LeftAlone {
		// For good: who goes on later must not come by it, and fail, each time.
		w.result.Alone = append(w.result.Alone, batchFailure{t.Node, err.Error()})
		w.err = errors.Join(w.err, w.keep(t))
		return
	}
	if err != nil {
		w.result.Failed = append(w.result.Failed, batchFailure{t.Node, err.Error()})
		return
	}
	w.result.Done++
	w.err = errors.Join(w.err, w.keep(t))
}

// close ends the progress: with no file if nothing is left to do. Who was left alone is not
// what was ordered, so the error says it.
func (b *batch) close(r *batchResult) error {
	if n := len(r.Alone); r.Done+n == r.Chosen {
		var errs []error
		if b.file != "" {
			errs = append(errs, os.Remove(b.file))
		}
		if n > 0 {
			errs = append(errs, fmt.Errorf("%s left alone", counted(n, "machine", "machines")))
		}
		return errors.Join(errs...)
	}
	r.Resume = b.file
	if b.file == "" { // of one machine, of which there is nothing to go on with
		if len(r.Failed) == 1 {
			return fmt.Errorf("%s: %s", r.Failed[0].Node, r.Failed[0].Cause)
		}
		return errors.New("not done")
	}
	return fmt.Errorf("%s: go on with --resume %s", r.missing(), b.file)
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
