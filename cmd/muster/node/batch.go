package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sync/errgroup"

	"muster/cmd/muster/internal/verb"
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

func (b *batch) addFlags(c *kingpin.CmdClause) {
	cli.IntIn(c.Flag("batch", "How many machines are in hand at once.").Default("50"), &b.size, 1, 1000)
	cli.Duration(c.Flag("pause-between", "Wait so long after each batch, as 10s.").Default("0s"), &b.pause, 0, cli.Year)
	cli.IntIn(c.Flag("max-failures", "Stop once more machines than this have failed.").Default("10"), &b.maxFailures, 0, math.MaxInt)
	c.Flag("progress", "File that keeps what is done; default a new one here for more than one machine.").PlaceHolder("FILE").StringVar(&b.file)
}

// A result says what has become of the machines.
type result struct {
	ID     string    `json:"id"` // of the commands
	Verb   string    `json:"verb"`
	Chosen int       `json:"chosen"` // machines that were to be done
	Done   int       `json:"done"`
	Failed []failure `json:"failed,omitempty"`
	Alone  []failure `json:"left_alone,omitempty"` // not any more what they were chosen for: they are not tried again
	Left   int       `json:"left,omitempty"`       // neither: it was stopped before
	Resume string    `json:"resume,omitempty"`     // file to go on with
}

// A failure is a machine for which it was not done, and why.
type failure struct {
	Node  wire.Identity `json:"node"`
	Cause string        `json:"cause"`
}

// run does one for each machine: as many at once as the batch has,
// the next as soon as one is done, or with a pause one batch after the other. The
// result is never nil; the error says that some have failed or were not tried.
func (b *batch) run(ctx context.Context, w *work, one func(context.Context, wire.Identity) error) (*result, error) {
	r := &running{work: w, limit: b.maxFailures, result: &result{ID: w.ID, Verb: w.Verb, Chosen: len(w.Nodes), Left: len(w.Nodes)}}
	if b.file == "" && len(w.Nodes) > 1 {
		b.file = "muster-" + w.Verb + "-" + w.ID[:8] + ".progress"
	}
	if err := w.keep(b.file); err != nil {
		return r.result, err
	}
	r.bar = cli.NewProgress(os.Stderr, w.Verb, len(w.Nodes))
	together := len(w.Nodes)
	if b.pause > 0 {
		together = b.size
	}
	paused := true
	for group := range slices.Chunk(w.Nodes, together) {
		if r.stopped() || !paused {
			break
		}
		var g errgroup.Group
		g.SetLimit(b.size)
		for _, id := range group {
			if ctx.Err() != nil {
				break
			}
			g.Go(func() error {
				if !r.stopped() { // it has waited for room
					r.took(ctx, id, one(ctx, id))
				}
				return nil
			})
		}
		_ = g.Wait() // what failed is in the result
		paused = r.result.Left == 0 || sleep(ctx, b.pause)
	}
	r.bar.Done()
	return r.result, errors.Join(r.err, ctx.Err(), r.end())
}

// running counts what comes of each machine.
type running struct {
	work  *work
	limit int
	bar   *cli.Progress

	mu     sync.Mutex
	result *result // guarded by mu
	err    error   // guarded by mu: the progress cannot be kept
}

// stopped reports whether no other machine is to be begun.
func (r *running) stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err != nil || len(r.result.Failed) > r.limit
}

// took takes in what came of a machine. Of one that was interrupted nothing is
// known: it is left, and done again with the rest.
func (r *running) took(ctx context.Context, id wire.Identity, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && ctx.Err() != nil {
		return
	}
	r.result.Left--
	r.bar.Add(1)
	var problem *httpapi.Problem
	switch {
	case errors.As(err, &problem) && problem.LeftAlone: // for good
		r.result.Alone = append(r.result.Alone, failure{id, err.Error()})
	case err != nil:
		r.result.Failed = append(r.result.Failed, failure{id, err.Error()})
		return
	default:
		r.result.Done++
	}
	r.err = errors.Join(r.err, r.work.done(id))
}

// end ends the progress: with no file if nothing is left to do. A machine that was left alone is an error.
func (r *running) end() error {
	left := len(r.result.Failed) + r.result.Left
	err := r.work.close(left == 0)
	switch {
	case left == 0 && len(r.result.Alone) == 0:
		return err
	case left == 0:
		return errors.Join(err, fmt.Errorf("%s left alone", verb.Machines(len(r.result.Alone))))
	case r.work.file != nil:
		r.result.Resume = r.work.file.Name()
		return errors.Join(err, fmt.Errorf("%s: go on with --resume %s", r.result.missing(), r.result.Resume))
	case len(r.result.Failed) == 1:
		return fmt.Errorf("%s: %s", r.result.Failed[0].Node, r.result.Failed[0].Cause)
	}
	return errors.New("not done")
}

// missing says how many are not done, and why. One at least is not.
func (r *result) missing() string {
	switch failed := verb.Counted(len(r.Failed), "machine failed", "machines failed"); {
	case r.Left == 0:
		return failed
	case len(r.Failed) == 0:
		return verb.Counted(r.Left, "machine was not tried", "machines were not tried")
	default:
		return failed + " and " + verb.Counted(r.Left, "was not tried", "were not tried")
	}
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
