package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sync/errgroup"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
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
	ID     string          `json:"id"` // of commands, in events
	Verb   string          `json:"verb"`
	Chosen int             `json:"chosen"` // number of nodes
	Done   int             `json:"done"`
	Failed []failure       `json:"failed,omitempty"`
	Alone  []failure       `json:"left_alone,omitempty"` // not changed, because the node changed after it was chosen
	Left   []wire.Identity `json:"left,omitempty"`       // not tried
	Token  string          `json:"token,omitempty"`      // one-time token of a grant

	cause error // why nodes were not tried, nil if unknown
}

// A failure is a node whose order failed.
type failure struct {
	Node  wire.Identity `json:"node"`
	Cause string        `json:"cause"`
}

// run calls one for each node, and counts the outcomes in r. An interrupted request counts as not tried.
func (b *batch) run(ctx context.Context, r *result, nodes []wire.Identity, one func(context.Context, int) error) {
	bar := cli.NewProgress(os.Stderr, r.Verb, "nodes", len(nodes))
	defer bar.Done()
	var mu sync.Mutex // guards r
	var stopped bool
	var g errgroup.Group
	g.SetLimit(b.concurrency)
	for i, node := range nodes {
		g.Go(func() error {
			mu.Lock()
			skip := stopped || ctx.Err() != nil
			mu.Unlock()
			var err error
			if !skip {
				err = one(ctx, i)
			}
			mu.Lock()
			defer mu.Unlock()
			var problem *httpapi.Problem
			switch {
			case errors.Is(err, httpapi.ErrNotServing):
				stopped, r.cause = true, err
				fallthrough
			case skip, err != nil && ctx.Err() != nil:
				r.Left = append(r.Left, node)
				return nil
			case err == nil:
				r.Done++
			case errors.As(err, &problem) && problem.LeftAlone:
				r.Alone = append(r.Alone, failure{node, err.Error()})
			default:
				r.Failed = append(r.Failed, failure{node, err.Error()})
				stopped = stopped || len(r.Failed) > b.maxFailures
			}
			bar.Add(1)
			return nil
		})
	}
	_ = g.Wait() // errors are in r
	byName := func(a, b failure) int { return strings.Compare(string(a.Node), string(b.Node)) }
	slices.SortFunc(r.Failed, byName)
	slices.SortFunc(r.Alone, byName)
	slices.Sort(r.Left)
}

// err returns an error with the numbers of nodes not done, or nil. For an order for one node, it is the cause.
func (r *result) err() error {
	errs := []error{r.cause}
	switch {
	case r.Chosen == 1 && len(r.Failed) == 1:
		return fmt.Errorf("%s: %s", r.Failed[0].Node, r.Failed[0].Cause)
	case r.Chosen == 1 && r.cause != nil:
		return r.cause
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
