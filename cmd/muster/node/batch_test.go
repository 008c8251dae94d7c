package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"muster/internal/wire"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// TestBatchStopsAfterMaxFailures has six machines, of which one is left alone and then one fails.
func TestBatchStopsAfterMaxFailures(t *testing.T) {
	t.Parallel()
	var nodes []wire.Identity
	for _, name := range strings.Fields("a b c d e f") {
		nodes = append(nodes, wire.Identity(name))
	}
	var told []wire.Identity
	b := batch{concurrency: 1}
	r := &result{Chosen: len(nodes)}
	b.run(t.Context(), r, nodes, func(_ context.Context, i int) error {
		id := nodes[i]
		told = append(told, id)
		switch id {
		case "b":
			return &httpapi.Problem{LeftAlone: true}
		case "d":
			return errors.New("away")
		}
		return nil
	})
	if !slices.Equal(told, nodes[:4]) || !slices.Equal(r.Left, nodes[4:]) || r.Done != 2 || len(r.Failed) != 1 || r.Failed[0].Node != "d" || len(r.Alone) != 1 || r.Alone[0].Node != "b" {
		t.Errorf("told %v: %+v", told, r)
	}
}

// TestBatchStopsWithoutAProvisioner wants it said once, and all other nodes to be left for another try.
func TestBatchStopsWithoutAProvisioner(t *testing.T) {
	t.Parallel()
	nodes := []wire.Identity{"a", "b", "c"}
	r := &result{Chosen: len(nodes)}
	b := batch{concurrency: 1, maxFailures: 10}
	b.run(t.Context(), r, nodes, func(_ context.Context, i int) error {
		if i == 1 {
			return fmt.Errorf("%w at x", httpapi.ErrNotServing)
		}
		return nil
	})
	want := "no provisioner answers at x\n2 nodes were not tried: run this again"
	if err := r.err(); r.Done != 1 || err == nil || err.Error() != want {
		t.Errorf("%d done, %v; want 1 and %q", r.Done, err, want)
	}
}

func TestResultCountsNodesThatAreNotDone(t *testing.T) {
	t.Parallel()
	failed := []operate.Failure{{Node: "web1", Cause: "away"}, {Node: "web2", Cause: "away"}}
	rest := make([]wire.Identity, 20)
	for want, r := range map[string]*result{
		"web1: away":    {Chosen: 1, Outcome: operate.Outcome{Failed: failed[:1]}},
		"1 node failed": {Chosen: 2, Outcome: operate.Outcome{Failed: failed[:1]}},
		"2 nodes failed\n1 node was not tried: run this again":              {Outcome: operate.Outcome{Failed: failed, Left: rest[:1]}},
		"1 node failed\n20 nodes were not tried: run this again":            {Outcome: operate.Outcome{Failed: failed[:1], Left: rest}},
		"1 node was not tried: run this again":                              {Outcome: operate.Outcome{Left: rest[:1]}},
		"1 node failed\n2 nodes were not changed: other changes came first": {Outcome: operate.Outcome{Failed: failed[:1], Alone: failed}},
	} {
		if got := r.err(); got == nil || got.Error() != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	if err := (&result{Chosen: 1, Outcome: operate.Outcome{Done: 1}}).err(); err != nil {
		t.Error(err)
	}
}
