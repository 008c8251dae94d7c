package operate

import (
	"context"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
)

// A Batch carries out an order for many nodes.
type Batch struct {
	Concurrency int // nodes at a time
	MaxFailures int // more failures in one run stop it

	Alone func(error) bool // the node was not touched, because it changed after it was chosen
	Over  func(error) bool // no other node can be tried
	Tried func(*Outcome)   // called after each node, one call at a time
}

// An Outcome is the result of a [Batch].
type Outcome struct {
	Done   int             `json:"done"`
	Failed []Failure       `json:"failed,omitempty"`
	Alone  []Failure       `json:"left_alone,omitempty"` // not changed, because the node changed after it was chosen
	Left   []wire.Identity `json:"left,omitempty"`       // not tried

	Cause error `json:"-"` // why nodes were not tried, nil if unknown
}

// A Failure is a node whose order failed.
type Failure struct {
	Node  wire.Identity `json:"node"`
	Cause string        `json:"cause"`
}

// Run calls one for each node, and counts the outcomes in r. An interrupted order counts as not tried. The lists are
// sorted at the end.
func (b *Batch) Run(ctx context.Context, r *Outcome, nodes []wire.Identity, one func(context.Context, int) error) {
	var mu sync.Mutex // guards r
	var stopped bool
	limit := len(r.Failed) + b.MaxFailures
	r.Left, r.Cause = nil, nil
	var g errgroup.Group
	g.SetLimit(b.Concurrency)
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
			switch {
			case err != nil && b.Over(err):
				stopped, r.Cause = true, err
				fallthrough
			case skip, err != nil && ctx.Err() != nil:
				r.Left = append(r.Left, node)
				return nil
			case err == nil:
				r.Done++
			case b.Alone(err):
				r.Alone = append(r.Alone, Failure{node, err.Error()})
			default:
				r.Failed = append(r.Failed, Failure{node, err.Error()})
				stopped = stopped || len(r.Failed) > limit
			}
			b.Tried(r)
			return nil
		})
	}
	_ = g.Wait() // errors are in r
	byName := func(a, b Failure) int { return strings.Compare(string(a.Node), string(b.Node)) }
	// Copies: Tried may have kept the lists.
	r.Failed = slices.SortedFunc(slices.Values(r.Failed), byName)
	r.Alone = slices.SortedFunc(slices.Values(r.Alone), byName)
	slices.Sort(r.Left)
}
