package policies

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// A Replay asks a policy about inputs that were recorded, and keeps what it
// decides otherwise. Make one with [NewReplay].
type Replay struct {
	next   *Engine // the policy to try
	report ReplayReport
	nodes  map[string]*NodeReplay // nil of one that does not flip
}

// A ReplayReport is what came of a [Replay].
type ReplayReport struct {
	Policy    string `json:"policy"`    // digest of the one that was tried
	Decisions int    `json:"decisions"` // replayed
	Nodes     int    `json:"nodes"`     // that they were about
	Flipped   int    `json:"flipped"`   // nodes of which a decision comes out with another verdict
	Failed    int    `json:"failed"`    // decisions that the policy does not come to
	Redacted  int    `json:"redacted"`  // inputs of which a secret was left out: these may come out otherwise

	// Differences are the nodes that flip, by name.
	Differences []*NodeReplay `json:"differences"`
}

// A NodeReplay is what a policy decides otherwise about one node: the newest of
// its decisions that flips.
type NodeReplay struct {
	Node    string    `json:"node"`
	At      time.Time `json:"at"`      // when it was decided
	Times   int       `json:"times"`   // decisions about the node that flip
	From    Verdict   `json:"from"`    // recorded
	To      Verdict   `json:"to"`      // of the policy that was tried
	Was     []string  `json:"was"`     // reasons recorded
	Reasons []string  `json:"reasons"` // of the policy that was tried
}

// NewReplay returns a Replay of the policy next.
func NewReplay(next *Engine) *Replay {
	return &Replay{next: next, nodes: make(map[string]*NodeReplay)}
}

// Add replays one recording.
func (r *Replay) Add(ctx context.Context, recorded *Recording) {
	n := &NodeReplay{
		Node:  recorded.Input.Identity,
		At:    recorded.Input.Time,
		Times: 1,
		From:  recorded.Verdict,
		Was:   recorded.Reasons,
	}
	d, err := r.next.Decide(ctx, recorded.Input)
	if err != nil {
		n.To, n.Reasons = VerdictFailed, []string{err.Error()}
	} else {
		n.To, n.Reasons = d.Verdict(), d.Why()
	}
	r.report.Decisions++
	if recorded.Redacted {
		r.report.Redacted++
	}
	if err != nil {
		r.report.Failed++
	}
	r.keep(n)
}

// keep takes in what came of one decision.
func (r *Replay) keep(n *NodeReplay) {
	before := r.nodes[n.Node]
	switch {
	case n.To == n.From:
		r.nodes[n.Node] = before // it counts as a node
	case before == nil:
		r.nodes[n.Node] = n
	case n.At.After(before.At):
		n.Times += before.Times
		r.nodes[n.Node] = n
	default:
		before.Times++
	}
}

// Report returns what came of it.
func (r *Replay) Report() *ReplayReport {
	report := &r.report
	report.Policy, report.Nodes, report.Differences = r.next.Digest(), len(r.nodes), []*NodeReplay{}
	for _, n := range r.nodes {
		if n != nil {
			report.Differences = append(report.Differences, n)
		}
	}
	report.Flipped = len(report.Differences)
	slices.SortFunc(report.Differences, func(a, b *NodeReplay) int { return cmp.Compare(a.Node, b.Node) })
	return report
}
