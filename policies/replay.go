package policies

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Replay evaluates a policy on recorded inputs, and collects the differences. Make one with [NewReplay].
type Replay struct {
	next   *Engine // the new policy
	report ReplayReport
	nodes  map[string]*NodeReplay // nil: both policies give the same verdict
}

// A ReplayReport is the result of a [Replay].
type ReplayReport struct {
	Policy    string `json:"policy"`    // digest of the new policy
	Decisions int    `json:"decisions"` // replayed
	Nodes     int    `json:"nodes"`     // in the decisions
	Flipped   int    `json:"flipped"`   // nodes with another verdict
	Failed    int    `json:"failed"`    // decisions without a result
	Redacted  int    `json:"redacted"`  // inputs with redacted secrets: their decision may be wrong

	// Differences are the nodes whose verdict differs, by name.
	Differences []*NodeReplay `json:"differences"`
}

// A NodeReplay is the newest decision about a node whose verdict differs.
type NodeReplay struct {
	Node    string    `json:"node"`    // with "/" and the name of a service certificate
	At      time.Time `json:"at"`      // of the decision
	Times   int       `json:"times"`   // decisions that flip
	From    Verdict   `json:"from"`    // as recorded
	To      Verdict   `json:"to"`      // by the new policy
	Was     []string  `json:"was"`     // as recorded
	Reasons []string  `json:"reasons"` // by the new policy
}

// NewReplay returns a Replay of the policy next.
func NewReplay(next *Engine) *Replay {
	return &Replay{next: next, nodes: make(map[string]*NodeReplay)}
}

// Add replays a recording.
func (r *Replay) Add(ctx context.Context, recorded *Recording) {
	n := &NodeReplay{
		Node:  recorded.Input.Identity,
		At:    recorded.Input.Time,
		Times: 1,
		From:  recorded.Verdict,
		Was:   recorded.Reasons,
	}
	if name := recorded.Input.Service(); name != "" {
		n.Node += "/" + name
	}
	d, _, err := r.next.Preview(ctx, recorded.Input)
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

func (r *Replay) keep(n *NodeReplay) {
	before := r.nodes[n.Node]
	switch {
	case n.To == n.From:
		r.nodes[n.Node] = before // counts the node
	case before == nil:
		r.nodes[n.Node] = n
	case n.At.After(before.At):
		n.Times += before.Times
		r.nodes[n.Node] = n
	default:
		before.Times++
	}
}

// Report returns the result.
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

// VerdictFailed is the verdict of a [Recording] if the evaluation failed.
const VerdictFailed Verdict = "failed"

// A Recording is a recorded decision with its whole input, so that another policy can be evaluated on it; see [Replay].
type Recording struct {
	// Input has its secrets redacted.
	Input *Input `json:"input"`

	Verdict Verdict  `json:"verdict"`
	Reasons []string `json:"reasons,omitempty"` // [Decision.Why], or the error

	Policy string `json:"policy"` // digest

	// Redacted: Input had secrets. A policy that reads a redacted value may decide otherwise.
	Redacted bool `json:"redacted,omitempty"`
}

// NewRecording records a decision, or err if there is none. digest is the policy's. in and d stay unchanged.
func NewRecording(in *Input, d *Decision, err error, digest string) *Recording {
	r := &Recording{Policy: digest}
	r.Input, r.Redacted = withoutSecrets(in)
	if err != nil || d == nil {
		r.Verdict, r.Reasons = VerdictFailed, []string{shapes(fmt.Sprint(err))}
		return r
	}
	r.Verdict, r.Policy = d.Verdict(), d.Digest
	for _, why := range d.Why() {
		r.Reasons = append(r.Reasons, shapes(why))
	}
	return r
}

// ParseRecording decodes a recording.
func ParseRecording(line []byte) (*Recording, error) {
	var r Recording
	err := json.Unmarshal(line, &r)
	if err == nil && r.Input == nil {
		err = errors.New("no input")
	}
	if err != nil {
		return nil, fmt.Errorf("recorded decision: %w", err)
	}
	return &r, nil
}
