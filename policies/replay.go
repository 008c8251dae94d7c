package policies

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Replay asks a policy about inputs that were recorded, and keeps what it
// decides otherwise. Make one with [NewReplay]. Safe for concurrent use.
type Replay struct {
	next *Engine // the policy to try

	mu     sync.Mutex
	report ReplayReport           // guarded by mu
	nodes  map[string]*NodeReplay // guarded by mu; nil of one about which nothing differs
}

// A ReplayReport is what came of a [Replay].
type ReplayReport struct {
	Policy    string `json:"policy"`    // digest of the one that was tried
	Decisions int    `json:"decisions"` // replayed
	Nodes     int    `json:"nodes"`     // that they were about
	Flipped   int    `json:"flipped"`   // nodes of which a decision comes out with another verdict
	Changed   int    `json:"changed"`   // nodes that get another configuration or certificate and the same verdict
	Failed    int    `json:"failed"`    // decisions that the policy does not come to
	Redacted  int    `json:"redacted"`  // inputs of which a secret was left out: these may come out otherwise

	// Differences are the nodes that flip or change, by name.
	Differences []*NodeReplay `json:"differences"`
}

// A NodeReplay is what a policy decides otherwise about one node: the newest of
// its decisions that flips, or else the newest that changes.
type NodeReplay struct {
	Node    string    `json:"node"`
	At      time.Time `json:"at"`      // when it was decided
	Times   int       `json:"times"`   // decisions about the node that come out otherwise
	Flips   bool      `json:"flips"`   // another verdict
	From    Verdict   `json:"from"`    // recorded
	To      Verdict   `json:"to"`      // of the policy that was tried
	Was     []string  `json:"was"`     // reasons recorded
	Reasons []string  `json:"reasons"` // of the policy that was tried

	// Changes are members of the decision that differ under the same verdict:
	// "configuration", "ttl", "dns_names", "server_auth". What a template or a helper
	// makes of a node is not compared.
	Changes []string `json:"changes,omitempty"`
}

// NewReplay returns a Replay of the policy next.
func NewReplay(next *Engine) *Replay {
	return &Replay{next: next, nodes: make(map[string]*NodeReplay)}
}

// Lines replays recordings in JSON, one a line; empty lines are passed over. It
// returns how many there were. The error is of a line that is no recording, or
// the context's.
func (r *Replay) Lines(ctx context.Context, lines []byte) (int, error) {
	n := 0
	for line := range bytes.Lines(lines) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var recorded Recording
		if err := json.Unmarshal(line, &recorded); err != nil {
			return n, fmt.Errorf("recorded decision: %w", err)
		}
		if recorded.Input == nil {
			return n, fmt.Errorf("recorded decision: no input")
		}
		if err := ctx.Err(); err != nil {
			return n, err
		}
		r.Add(ctx, &recorded)
		n++
	}
	return n, nil
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
	if n.Flips = n.To != n.From; n.To == VerdictAllow && !n.Flips {
		n.Changes = changes(recorded, d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Decisions++
	if recorded.Redacted {
		r.report.Redacted++
	}
	if err != nil {
		r.report.Failed++
	}
	r.keep(n)
}

// keep takes in what came of one decision. The caller holds mu.
func (r *Replay) keep(n *NodeReplay) {
	differs := n.Flips || len(n.Changes) > 0
	before, known := r.nodes[n.Node]
	switch {
	case !differs:
		if !known {
			r.nodes[n.Node] = nil // it counts as a node
		}
	case before == nil:
		r.nodes[n.Node] = n
	case n.Flips && !before.Flips, n.Flips == before.Flips && n.At.After(before.At):
		n.Times += before.Times
		r.nodes[n.Node] = n
	default:
		before.Times++
	}
}

// changes names the members of a decision that differ from what was recorded.
func changes(recorded *Recording, d *Decision) []string {
	var changed []string
	if ConfigurationDigest(d.Configuration) != recorded.Configuration {
		changed = append(changed, "configuration")
	}
	if recorded.TTL != d.Certificate.TTL {
		changed = append(changed, "ttl")
	}
	if !slices.Equal(recorded.DNSNames, d.Certificate.DNSNames) {
		changed = append(changed, "dns_names")
	}
	if recorded.ServerAuth != d.Certificate.ServerAuth {
		changed = append(changed, "server_auth")
	}
	return changed
}

// Report returns what came of it so far. It is the caller's.
func (r *Replay) Report() *ReplayReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.report
	report.Policy, report.Nodes, report.Differences = r.next.Digest(), len(r.nodes), []*NodeReplay{}
	for _, n := range r.nodes {
		if n == nil {
			continue
		}
		if n.Flips {
			report.Flipped++
		} else {
			report.Changed++
		}
		copied := *n
		report.Differences = append(report.Differences, &copied)
	}
	slices.SortFunc(report.Differences, func(a, b *NodeReplay) int { return cmp.Compare(a.Node, b.Node) })
	return &report
}
