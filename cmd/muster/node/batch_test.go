package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"muster/internal/wire"
	"muster/provisioner/httpapi"
)

// TestBatchStopsAfterMaxFailures has six machines, of which one is left alone and then one fails.
func TestBatchStopsAfterMaxFailures(t *testing.T) {
	t.Parallel()
	var nodes []wire.Identity
	for _, name := range strings.Fields("a b c d e f") {
		nodes = append(nodes, wire.Identity(name))
	}
	var told []wire.Identity
	b := batch{size: 1, maxFailures: 0}
	outcomes := b.run(t.Context(), "restart", len(nodes), func(_ context.Context, i int) error {
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
	r := &result{Chosen: len(nodes)}
	r.count(nodes, outcomes)
	if !slices.Equal(told, nodes[:4]) || !slices.Equal(r.Left, nodes[4:]) || r.Done != 2 || len(r.Failed) != 1 || r.Failed[0].Node != "d" || len(r.Alone) != 1 || r.Alone[0].Node != "b" {
		t.Errorf("told %v: %+v", told, r)
	}
}

func TestMissingMachinesAreCounted(t *testing.T) {
	t.Parallel()
	failed := []failure{{"web1", "away"}, {"web2", "away"}}
	rest := make([]wire.Identity, 20)
	for want, r := range map[string]*result{
		"web1: away":                              {Chosen: 1, Failed: failed[:1]},
		"1 machine failed":                        {Chosen: 2, Failed: failed[:1]},
		"2 machines failed and 1 is left":         {Failed: failed, Left: rest[:1]},
		"1 machine failed and 20 are left":        {Failed: failed[:1], Left: rest},
		"1 machine is left":                       {Left: rest[:1]},
		"1 machine failed\n2 machines left alone": {Failed: failed[:1], Alone: failed},
	} {
		if got := r.err(); got == nil || got.Error() != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	if err := (&result{Chosen: 1, Done: 1}).err(); err != nil {
		t.Error(err)
	}
}
