package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner"
)

// An order is a verb for one node or many: named, or chosen from a list of the provisioner's.
type order struct {
	verb.Bulk
	selection
	batch
	verb string // as after "muster node"

	given    []string // names and patterns
	names    []wire.Identity
	patterns []wire.Pattern
	all      bool

	token string // of a grant for the only node
}

// A selection has the flags that choose nodes from one of the provisioner's lists.
type selection interface {
	addFlags(*kingpin.CmdClause)
	Empty() bool
	hints() []string // names, for completion

	check() error

	// choose adds to w the nodes that match the flags and the pattern; "" matches all.
	choose(ctx context.Context, o *verb.Operator, pattern wire.Pattern, w *targets) error
}

const orderHelp = `

Nodes are given by name, by a pattern such as 'web*.example.net', or with --all and
filters ('muster help filters'). Unless one node is named, the verb shows the nodes
and asks first; --yes answers, --dry-run only shows. A node that changes before its
turn is left alone, and is reported. The verb handles --concurrency nodes at a time,
and stops after --max-failures. It can be run again after an interruption; -o json
names the nodes that were not tried.

Exits with 0 if all nodes are done, 1 if not, or if the answer was no, 2 if the
command line is wrong.`

func (v *order) addFlags(c *kingpin.CmdClause, all cli.Verbs) {
	c.Arg("nodes", "Names of nodes, or patterns of names.").HintAction(v.selection.hints).StringsVar(&v.given)
	cli.Flag(c, "all").BoolVar(&v.all)
	v.selection.addFlags(c)
	v.batch.addFlags(c)
	v.AddFlags(c, all)
	all.Check(c, v.check)
}

func (v *order) check() error {
	v.names, v.patterns = nil, nil
	var errs []error
	for _, text := range v.given {
		if strings.ContainsAny(text, "*?") {
			p, err := wire.ParseNamePattern(text)
			v.patterns, errs = append(v.patterns, p), append(errs, err)
			continue
		}
		id, err := wire.ParseName(text)
		if errs = append(errs, err); !slices.Contains(v.names, id) {
			v.names = append(v.names, id)
		}
	}
	switch {
	case len(v.given) == 0 && !v.all && v.Empty():
		errs = append(errs,
			errors.New("no nodes: give names or patterns, --all, or a filter such as --site or --match"))
	case len(v.given) > 0 && v.all:
		errs = append(errs, errors.New("names or patterns, and --all: give one or the other"))
	case len(v.names) > 0 && !v.Empty():
		errs = append(errs, errors.New("names, and a filter: give one or the other"))
	}
	return errors.Join(append(errs, v.selection.check())...)
}

// A target is a node of an order.
type target struct {
	Node  wire.Identity
	State provisioner.State        // as the list showed it; "" if it was named, or is pending
	Seen  provisioner.Precondition // as the list showed it; zero if it was named
	Key   string                   // fingerprint of a pending node's key that the list showed
}

// targets are the nodes of an order.
type targets struct {
	ID      string // of commands
	Targets []target

	SeenBefore time.Time // of --unseen
	table      cli.Parts // printed before the question; nil if names suffice
}

// unique removes nodes that were chosen twice, and sorts the rest by name.
func (w *targets) unique() {
	slices.SortStableFunc(w.Targets, func(a, b target) int { return strings.Compare(string(a.Node), string(b.Node)) })
	w.Targets = slices.CompactFunc(w.Targets,
		func(a, b target) bool { return a.Node == b.Node && (a.Key == b.Key || a.Key == "") })
}

func (w *targets) states() map[provisioner.State]int {
	counts := map[provisioner.State]int{}
	for i := range w.Targets {
		if s := w.Targets[i].State; s != "" {
			counts[s]++
		}
	}
	return counts
}

func (w *targets) nodes() []wire.Identity {
	ids := make([]wire.Identity, len(w.Targets))
	for i := range w.Targets {
		ids[i] = w.Targets[i].Node
	}
	return ids
}

// text returns the number of nodes, also by state, and the first names.
func (w *targets) text() string {
	const shown = 10
	ids, text := w.nodes(), verb.Nodes(len(w.Targets))
	if states := w.states(); len(states) > 0 {
		text += " (" + verb.Tallied(states) + ")"
	}
	text += ": " + verb.Joined(ids[:min(shown, len(ids))])
	if more := len(ids) - shown; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// run calls one for each node if the operator agrees, and reports the outcome. done describes a node after it.
func (v *order) run(ctx context.Context, one func(context.Context, *targets, target) error, done func() string) error {
	w := &targets{ID: wire.NewID()}
	for _, id := range v.names {
		w.Targets = append(w.Targets, target{Node: id})
	}
	patterns := v.patterns
	if len(v.given) == 0 {
		patterns = []wire.Pattern{""}
	}
	for _, p := range patterns {
		if err := v.choose(ctx, &v.Operator, p, w); err != nil {
			return err
		}
	}
	w.unique()
	r := &result{ID: w.ID, Verb: v.verb, Chosen: len(w.Targets)}
	switch {
	case v.DryRun:
		return v.show(w)
	case r.Chosen == 0:
		return verb.Show(&v.Output, r, func(*result) fmt.Stringer { return v.none() })
	}
	if !v.Yes && (r.Chosen != 1 || len(v.names) != 1) {
		if err := verb.Agree(ctx, "node "+v.verb, w.text(), w.table); err != nil {
			return err
		}
	}
	v.batch.run(ctx, r, w.nodes(), func(ctx context.Context, i int) error { return one(ctx, w, w.Targets[i]) })
	r.Token = v.token
	said := r.Alone
	if r.Chosen > 1 { // for one node, the error says it
		said = slices.Concat(r.Alone, r.Failed)
	}
	for _, f := range said {
		v.Say("%s: %s", f.Node, f.Cause)
	}
	err := errors.Join(ctx.Err(), r.err())
	tell := verb.Show[*result]
	if err == nil {
		tell = verb.ShowDone[*result]
	}
	return errors.Join(err, tell(&v.Output, r, func(r *result) fmt.Stringer {
		switch {
		case r.Done == 0:
		case r.Chosen == 1:
			v.Say("%s %s", w.Targets[0].Node, done())
			if v.token != "" {
				return cli.Text(v.token + "\n")
			}
		default:
			v.Say("%d of %s: each %s", r.Done, verb.Nodes(r.Chosen), done())
		}
		return nil
	}))
}

// A preview is the output of --dry-run as JSON.
type preview struct {
	Verb   string                    `json:"verb"`
	Chosen int                       `json:"chosen"`
	States map[provisioner.State]int `json:"states,omitempty"`
	Nodes  []wire.Identity           `json:"nodes"`
}

// show prints the names of the nodes that the order is for, one a line.
func (v *order) show(w *targets) error {
	ids := w.nodes()
	p := &preview{Verb: v.verb, Chosen: len(ids), States: w.states(), Nodes: ids}
	return verb.Show(&v.Output, p, func(*preview) fmt.Stringer {
		if len(ids) == 0 {
			return v.none()
		}
		v.After("would %s %s", v.verb, w.text())
		return cli.Text(strings.ReplaceAll(verb.Joined(ids), ", ", "\n") + "\n")
	})
}

func (v *order) none() fmt.Stringer {
	v.Say("no nodes match: nothing to do")
	return nil
}
