package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

// An order is a verb for one machine or many: named, or chosen from the fleet by a filter.
type order struct {
	verb.Operator
	filter
	batch
	verb      string        // as after "muster node"
	minUnseen time.Duration // the shortest span of --unseen

	names       []string
	all         bool
	dryRun, yes bool
}

const orderHelp = `

The machines are named here, or chosen from the fleet with --all and filters as of
'muster node list'. It shows first how many machines it is about, and asks unless --yes;
--dry-run shows all of them and does nothing. Which machines they are is settled then:
one that is not any more what it was chosen for is left alone, and named. --concurrency are in
hand at once, and the verb stops once more than --max-failures have failed. An order that
was interrupted can be given again: what is ordered twice is done twice, and --json names
the machines that are left.

Exits with 0 if all machines are done, 1 if one has failed, is left or left alone, or
the answer was no, 2 if the command line makes no sense.`

// addFlags adds the arguments and flags, with what is checked of them.
func (v *order) addFlags(c *kingpin.CmdClause, all cli.Verbs) {
	c.Arg("nodes", "Names of nodes.").HintAction(verb.NodeNames).StringsVar(&v.names)
	cli.Flag(c, "all").BoolVar(&v.all)
	v.filter.addFlags(c)
	v.batch.addFlags(c)
	cli.Flag(c, "dry-run").BoolVar(&v.dryRun)
	cli.Flag(c, "yes").BoolVar(&v.yes)
	v.AddChangeFlags(c, all)
	all.Check(c, v.check)
}

// filtered reports whether the machines are chosen from the fleet.
func (v *order) filtered() bool { return v.all || !v.empty() }

// check reports all that is wrong with the command line.
func (v *order) check() error {
	var choice error
	switch {
	case len(v.names) == 0 && !v.filtered():
		choice = errors.New("name machines, or choose them with --all, --state, --site, --prefix, --match, --fact, --unseen and the like")
	case len(v.names) > 0 && v.filtered():
		choice = errors.New("names, and --all or a filter: only one of them can be")
	}
	_, unnamed := identities(v.names)
	q, err := v.query(fleet.Query{}, time.Now())
	if before := q.SeenBefore; err == nil && !before.IsZero() && time.Since(before) < v.minUnseen {
		err = fmt.Errorf("--unseen: %s is less than %s ago: machines that run say so every half hour only, and would fit; want 1h or more (m is minutes, M months)", verb.Instant(before), span.Format(v.minUnseen))
	}
	return errors.Join(choice, unnamed, err)
}

// targets are the machines of an order.
type targets struct {
	ID    string // of the commands
	Nodes []wire.Identity

	// SeenBefore is since when a node that was chosen by --unseen had not been heard of.
	SeenBefore time.Time

	// Seen is what the list showed of the nodes that a filter chose; nil if names were given.
	Seen map[wire.Identity]provisioner.Seen

	counts map[provisioner.State]int // of the nodes, if a filter chose them
}

// text says how many machines there are, by state, and the first names.
func (w *targets) text() string {
	const shown = 10
	list := verb.Joined(w.Nodes[:min(shown, len(w.Nodes))])
	if more := len(w.Nodes) - shown; more > 0 {
		list += fmt.Sprintf(", and %d more", more)
	}
	states := ""
	if len(w.counts) > 0 {
		states = " (" + countedStates(w.counts) + ")"
	}
	return fmt.Sprintf("%s%s: %s", verb.Machines(len(w.Nodes)), states, list)
}

// run calls one for each of the machines, if the operator agrees, and says what came of it: done is what
// each machine is then.
func (v *order) run(ctx context.Context, one func(context.Context, *targets, wire.Identity) error, done func() string) error {
	w, err := v.targets(ctx)
	if err != nil {
		return err
	}
	switch {
	case v.dryRun:
		return v.show(w)
	case len(w.Nodes) == 0:
		return verb.Show(&v.Output, &result{ID: w.ID, Verb: v.verb}, func(*result) io.WriterTo { return v.none() })
	}
	if !v.yes && (len(w.Nodes) != 1 || len(v.names) != 1) {
		if err := agree(ctx, v.verb, w.text()); err != nil {
			return err
		}
	}
	r := &result{ID: w.ID, Verb: v.verb, Chosen: len(w.Nodes)}
	r.count(w.Nodes, v.batch.run(ctx, v.verb, len(w.Nodes), func(ctx context.Context, i int) error {
		return one(ctx, w, w.Nodes[i])
	}))
	said := r.Alone
	if r.Chosen > 1 { // else the error says it
		said = slices.Concat(r.Alone, r.Failed)
	}
	for _, f := range said {
		v.Say("%s: %s", f.Node, f.Cause)
	}
	err = errors.Join(ctx.Err(), r.err())
	tell := verb.Show[*result]
	if err == nil {
		tell = verb.ShowDone[*result]
	}
	return errors.Join(err, tell(&v.Output, r, func(r *result) io.WriterTo {
		switch {
		case r.Done == 0:
		case r.Chosen == 1 && len(v.names) == 1:
			v.Say("%s %s", w.Nodes[0], done())
		case r.Chosen == 1:
			v.Say("1 machine %s", done())
		default:
			v.Say("%d of %s: each %s", r.Done, verb.Machines(r.Chosen), done())
		}
		return nil
	}))
}

// targets returns the machines that are meant.
func (v *order) targets(ctx context.Context) (*targets, error) {
	w := &targets{ID: wire.NewID()}
	if v.filtered() {
		return w, v.choose(ctx, w)
	}
	var err error
	w.Nodes, err = identities(v.names)
	return w, err
}

// identities returns the machines that are named, each once and in order. The error lists the names that are none.
func identities(names []string) (ids []wire.Identity, err error) {
	seen := map[wire.Identity]bool{}
	for _, name := range names {
		id, wrong := wire.ParseIdentity(name)
		if err = errors.Join(err, wrong); !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, err
}

// choose has the machines that the filter fits be those of w. The ones in a state that the verb is not for are
// left out, unless the filter names states.
func (v *order) choose(ctx context.Context, w *targets) error {
	q, err := v.query(fleet.Query{Limit: fleet.MaxLimit}, time.Now())
	if err != nil {
		return err
	}
	if len(q.States) == 0 {
		q.States = live
	}
	w.SeenBefore = q.SeenBefore
	w.Seen, w.counts = map[wire.Identity]provisioner.Seen{}, map[provisioner.State]int{}
	return pages(ctx, &v.Operator, q, func(p *fleet.Page) int {
		for i := range p.Nodes {
			n := &p.Nodes[i]
			w.Nodes = append(w.Nodes, n.Identity)
			w.Seen[n.Identity] = provisioner.Seen{Revision: n.Revision, OwnedSince: n.OwnedSince}
			w.counts[n.State]++
		}
		return fleet.MaxLimit
	})
}

// A preview is what an order would touch, for programs.
type preview struct {
	Verb   string                    `json:"verb"`
	Chosen int                       `json:"chosen"`
	States map[provisioner.State]int `json:"states,omitempty"`
	Nodes  []wire.Identity           `json:"nodes"`
}

// show prints what the verb would touch: names, one a line.
func (v *order) show(w *targets) error {
	p := &preview{Verb: v.verb, Chosen: len(w.Nodes), States: w.counts, Nodes: append([]wire.Identity{}, w.Nodes...)}
	return verb.Show(&v.Output, p, func(*preview) io.WriterTo {
		if len(w.Nodes) == 0 {
			return v.none()
		}
		v.After("would %s %s", v.verb, w.text())
		return cli.Text(strings.ReplaceAll(verb.Joined(w.Nodes), ", ", "\n") + "\n")
	})
}

// none says that no machine was chosen.
func (v *order) none() io.WriterTo {
	v.Say("no machine fits: nothing to do")
	return nil
}

// agree asks a person, who has to answer y or yes.
func agree(ctx context.Context, name, machines string) error {
	question := fmt.Sprintf("%s %s?", name, machines)
	if !cli.IsTerminal(os.Stdin) {
		return &cli.UsageError{
			Mistakes: fmt.Errorf("%s No terminal to ask on: say --yes", question),
			Help:     verb.Program + " node " + name,
		}
	}
	if _, err := fmt.Fprintf(os.Stderr, "%s [y/N] ", cli.Printable(question)); err != nil {
		return err
	}
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errors.Join(ctx.Err(), errors.New("not done: the answer was no"))
	}
	return ctx.Err()
}
