package policies

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Replay asks a policy about inputs that were recorded, and keeps what it
// decides otherwise. Make one with [NewReplay]. Safe for concurrent use.
type Replay struct {
	cfg ReplayConfig // set by NewReplay, then read-only

	mu     sync.Mutex
	report ReplayReport           // guarded by mu
	nodes  map[string]*NodeReplay // guarded by mu; nil of one about which nothing differs
	helped map[string]struct{}    // guarded by mu; nodes of which a helper makes the configuration
	parts  map[string]struct{}    // guarded by mu; nodes of which it was rendered from facts that are not whole
}

// A ReplayConfig configures [NewReplay].
type ReplayConfig struct {
	Next *Engine // the policy to try. Required

	// Live is the policy in use, which says what keys of a configuration were. Nil
	// leaves them unknown.
	Live *Engine

	// Was and Is configure nodes that the policy which decided, or Next, gives no
	// configuration: the same pointer if it is the same. Nil of either leaves unknown
	// what such nodes got, or would get.
	Was, Is *Fallback
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

	// Partial counts nodes whose configuration was rendered from facts of which a
	// secret was left out. Helped are those whose configuration comes, or would come, of a
	// helper, by name: it is not run again, so what differs of them is not known.
	Partial int      `json:"partial"`
	Helped  []string `json:"helped"`

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

	// Keys are those of the configuration that differ, by name. Of a policy's they are
	// known only if the live policy is the one that decided, and of a helper's never;
	// then Keys is nil and Configuration says that something differs.
	Keys          []KeyChange `json:"keys,omitempty"`
	Configuration bool        `json:"configuration,omitempty"`

	// WasBy and IsBy say what makes the configuration, where it is not the policy both
	// times; else they are empty. Partial says that it was rendered from facts of
	// which a secret was left out, which so stands in place of it.
	WasBy   Maker `json:"was_by,omitempty"`
	IsBy    Maker `json:"is_by,omitempty"`
	Partial bool  `json:"partial,omitempty"`

	Certificate []string `json:"certificate,omitempty"` // members that differ: "ttl", "dns_names", "server_auth"
}

// A KeyChange is a key of a configuration that differs. What is called like a
// secret has [Redacted] as its value.
type KeyChange struct {
	Key  string `json:"key"`
	What string `json:"what"` // "added", "removed" or "changed"
	Was  string `json:"was,omitempty"`
	Is   string `json:"is,omitempty"`
}

// NewReplay returns a Replay of a policy.
func NewReplay(cfg ReplayConfig) *Replay {
	return &Replay{
		cfg: cfg, report: ReplayReport{Policy: cfg.Next.Digest()}, nodes: make(map[string]*NodeReplay),
		helped: make(map[string]struct{}), parts: make(map[string]struct{}),
	}
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
	n := &NodeReplay{Node: recorded.Input.Identity, At: recorded.Input.Time, Times: 1, From: recorded.Verdict, Was: recorded.Reasons}
	d, err := r.cfg.Next.Decide(ctx, recorded.Input)
	if err != nil {
		n.To, n.Reasons = VerdictFailed, []string{err.Error()}
	} else {
		n.To, n.Reasons = d.Verdict(), d.Why()
	}
	var seen rendering
	if n.To == VerdictAllow {
		seen = r.configure(ctx, n, recorded, d)
	}
	if n.Flips = n.To != n.From; n.To == VerdictAllow && !n.Flips {
		n.Certificate = certificateChanges(recorded, d)
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
	if seen.helped {
		r.helped[n.Node] = struct{}{}
	}
	if seen.rendered && recorded.Redacted {
		r.parts[n.Node] = struct{}{}
	}
	r.keep(n)
}

// keep takes in what came of one decision. The caller holds mu.
func (r *Replay) keep(n *NodeReplay) {
	differs := n.Flips || n.Configuration || len(n.Certificate) > 0
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

// keyChanges returns how two configurations differ, by key.
func keyChanges(was, is map[string]string) []KeyChange {
	all := maps.Clone(was)
	if all == nil {
		all = make(map[string]string)
	}
	maps.Copy(all, is)
	shown := func(key, value string) string {
		if IsSecretName(key) {
			return Redacted
		}
		return shapes(value)
	}
	var changes []KeyChange
	for _, key := range slices.Sorted(maps.Keys(all)) {
		old, had := was[key]
		value, has := is[key]
		switch {
		case !had:
			changes = append(changes, KeyChange{Key: key, What: "added", Is: shown(key, value)})
		case !has:
			changes = append(changes, KeyChange{Key: key, What: "removed", Was: shown(key, old)})
		case old != value:
			changes = append(changes, KeyChange{Key: key, What: "changed", Was: shown(key, old), Is: shown(key, value)})
		}
	}
	return changes
}

// certificateChanges names what differs of the certificate that is wanted.
func certificateChanges(recorded *Recording, d *Decision) []string {
	var changed []string
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

// Report returns what came of it so far. Values of configurations are in it only
// if they are asked for. It is the caller's.
func (r *Replay) Report(values bool) *ReplayReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.report
	report.Nodes, report.Differences = len(r.nodes), []*NodeReplay{}
	report.Partial, report.Helped = len(r.parts), slices.AppendSeq([]string{}, maps.Keys(r.helped))
	slices.Sort(report.Helped)
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
		if copied.Keys = slices.Clone(n.Keys); !values {
			for i := range copied.Keys {
				copied.Keys[i].Was, copied.Keys[i].Is = "", ""
			}
		}
		report.Differences = append(report.Differences, &copied)
	}
	slices.SortFunc(report.Differences, func(a, b *NodeReplay) int {
		return cmp.Compare(strings.ToLower(a.Node), strings.ToLower(b.Node))
	})
	return &report
}
