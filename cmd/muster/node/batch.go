package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
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
	maxFailures int
}

func (b *batch) addFlags(c *kingpin.CmdClause) {
	cli.IntIn(cli.Flag(c, "concurrency").Default("50"), &b.size, 1, 1000)
	cli.IntIn(cli.Flag(c, "max-failures").Default("10"), &b.maxFailures, 0, math.MaxInt)
}

// A result says what has become of the machines.
type result struct {
	ID     string          `json:"id"` // of the commands
	Verb   string          `json:"verb"`
	Chosen int             `json:"chosen"` // machines that were to be done
	Done   int             `json:"done"`
	Failed []failure       `json:"failed,omitempty"`
	Alone  []failure       `json:"left_alone,omitempty"` // no longer what they were chosen for
	Left   []wire.Identity `json:"left,omitempty"`       // the verb was stopped before they were done
}

// A failure is a machine for which it was not done, and why.
type failure struct {
	Node  wire.Identity `json:"node"`
	Cause string        `json:"cause"`
}

// errLeft is the outcome of a machine that the batch did not come to.
var errLeft = errors.New("not tried")

// run calls one for each of so many machines and returns the outcomes: as many at once as the batch has, the next as soon as one
// is done. A machine whose request was interrupted is left.
func (b *batch) run(ctx context.Context, name string, nodes int, one func(context.Context, int) error) []error {
	bar := cli.NewProgress(os.Stderr, name, "nodes", nodes)
	defer bar.Done()
	outcomes := make([]error, nodes)
	for i := range outcomes {
		outcomes[i] = errLeft
	}
	var failed atomic.Int64
	stopped := func() bool { return ctx.Err() != nil || failed.Load() > int64(b.maxFailures) }
	var g errgroup.Group
	g.SetLimit(b.size)
	for i := range nodes {
		g.Go(func() error {
			if stopped() {
				return nil
			}
			err := one(ctx, i)
			if err != nil && ctx.Err() != nil {
				return nil
			}
			if err != nil && !leftAlone(err) {
				failed.Add(1)
			}
			outcomes[i] = err
			bar.Add(1)
			return nil
		})
	}
	_ = g.Wait() // errors are in the outcomes
	return outcomes
}

// leftAlone reports an order that was refused because the machine is no longer what it was chosen for.
func leftAlone(err error) bool {
	var problem *httpapi.Problem
	return errors.As(err, &problem) && problem.LeftAlone
}

// count takes the outcome of each machine in.
func (r *result) count(nodes []wire.Identity, outcomes []error) {
	for i, err := range outcomes {
		switch {
		case err == nil:
			r.Done++
		case errors.Is(err, errLeft):
			r.Left = append(r.Left, nodes[i])
		case leftAlone(err):
			r.Alone = append(r.Alone, failure{nodes[i], err.Error()})
		default:
			r.Failed = append(r.Failed, failure{nodes[i], err.Error()})
		}
	}
}

// err says how many machines are not done, or nil. Of one that was to be done alone it has the cause.
func (r *result) err() error {
	var errs []error
	switch failed := verb.Counted(len(r.Failed), "machine failed", "machines failed"); {
	case r.Chosen == 1 && len(r.Failed) == 1:
		return fmt.Errorf("%s: %s", r.Failed[0].Node, r.Failed[0].Cause)
	case len(r.Failed) > 0 && len(r.Left) > 0:
		errs = append(errs, fmt.Errorf("%s and %s", failed, verb.Counted(len(r.Left), "is left", "are left")))
	case len(r.Failed) > 0:
		errs = append(errs, errors.New(failed))
	case len(r.Left) > 0:
		errs = append(errs, errors.New(verb.Counted(len(r.Left), "machine is left", "machines are left")))
	}
	if len(r.Alone) > 0 {
		errs = append(errs, fmt.Errorf("%s left alone", verb.Machines(len(r.Alone))))
	}
	return errors.Join(errs...)
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
