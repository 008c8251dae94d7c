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
	next *Engine
	old  *Engine // nil if there is none to compare configurations with

	mu     sync.Mutex
	report ReplayReport
	nodes  map[string]*NodeReplay
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

	// Keys are those of the configuration that differ, by name. They are known only
	// if the live policy is the one that decided; else Keys is nil and Configuration
	// says that something differs.
	Keys          []KeyChange `json:"keys,omitempty"`
	Configuration bool        `json:"configuration,omitempty"`
	Certificate   []string    `json:"certificate,omitempty"` // members that differ: "ttl", "dns_names", "server_auth"
}

// A KeyChange is a key of a configuration that differs. What is called like a
// secret has [Redacted] as its value.
type KeyChange struct {
	Key  string `json:"key"`
	What string `json:"what"` // "added", "removed" or "changed"
	Was  string `json:"was,omitempty"`
	Is   string `json:"is,omitempty"`
}

// NewReplay returns a Replay of a policy. live is the one in use, which says what
// keys of a configuration were; nil leaves them unknown.
func NewReplay(next, live *Engine) *Replay {
	return &Replay{next: next, old: live, report: ReplayReport{Policy: next.Digest()}, nodes: make(map[string]*NodeReplay)}
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
	d, err := r.next.Decide(ctx, recorded.Input)
	to, reasons := VerdictFailed, []string(nil)
	if err != nil {
		reasons = []string{err.Error()}
	} else {
		to, reasons = d.Verdict(), d.Why()
	}
	n := &NodeReplay{
		Node: recorded.Input.Identity, At: recorded.Input.Time, Times: 1, Flips: to != recorded.Verdict,
		From: recorded.Verdict, To: to, Was: recorded.Reasons, Reasons: reasons,
	}
	if to == VerdictAllow && !n.Flips {
		n.Certificate = certificateChanges(recorded, d)
		if n.Configuration = ConfigurationDigest(d.Configuration) != recorded.Configuration; n.Configuration {
			n.Keys = r.keys(ctx, recorded, d.Configuration)
		}
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

// keys returns how configurations differ, nil if what was is not known.
func (r *Replay) keys(ctx context.Context, recorded *Recording, is map[string]string) []KeyChange {
	if r.old == nil || r.old.Digest() != recorded.Policy {
		return nil
	}
	d, err := r.old.Decide(ctx, recorded.Input)
	if err != nil || ConfigurationDigest(d.Configuration) != recorded.Configuration {
		return nil // something of the input was left out
	}
	return keyChanges(d.Configuration, is)
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
