package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// A batch sets how an order handles many nodes.
type batch struct {
	concurrency int
	maxFailures int
}

func (b *batch) addFlags(c *kingpin.CmdClause) {
	cli.IntIn(cli.Flag(c, "concurrency").Default("50"), &b.concurrency, 1, 1000)
	cli.IntIn(cli.Flag(c, "max-failures").Default("10"), &b.maxFailures, 0, math.MaxInt)
}

// A result is the outcome of an order.
type result struct {
	ID     string `json:"id"` // of commands, in events
	Verb   string `json:"verb"`
	Chosen int    `json:"chosen"` // number of nodes
	operate.Outcome
	Token string `json:"token,omitempty"` // one-time token of a grant
}

// run calls one for each node, and counts the outcomes in r. An interrupted request counts as not tried.
func (b *batch) run(ctx context.Context, r *result, nodes []wire.Identity, one func(context.Context, int) error) {
	bar := cli.NewProgress(os.Stderr, r.Verb, "nodes", len(nodes))
	defer bar.Done()
	many := operate.Batch{
		Concurrency: b.concurrency,
		MaxFailures: b.maxFailures,
		Over:        func(err error) bool { return errors.Is(err, httpapi.ErrNotServing) },
		Alone: func(err error) bool {
			var problem *httpapi.Problem
			return errors.As(err, &problem) && problem.LeftAlone
		},
		Tried: func(*operate.Outcome) { bar.Add(1) },
	}
	many.Run(ctx, &r.Outcome, nodes, one)
}

// err returns an error with the numbers of nodes not done, or nil. For an order for one node, it is the cause.
func (r *result) err() error {
	errs := []error{r.Cause}
	switch {
	case r.Chosen == 1 && len(r.Failed) == 1:
		return fmt.Errorf("%s: %s", r.Failed[0].Node, r.Failed[0].Cause)
	case r.Chosen == 1 && r.Cause != nil:
		return r.Cause
	}
	if n := len(r.Failed); n > 0 {
		errs = append(errs, fmt.Errorf("%s failed", verb.Nodes(n)))
	}
	if n := len(r.Alone); n > 0 {
		errs = append(errs,
			fmt.Errorf("%s not changed: other changes came first", verb.Counted(n, "node was", "nodes were")))
	}
	if n := len(r.Left); n > 0 {
		errs = append(errs, fmt.Errorf("%s not tried: run this again", verb.Counted(n, "node was", "nodes were")))
	}
	return errors.Join(errs...)
}
