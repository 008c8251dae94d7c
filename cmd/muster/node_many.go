package main

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

	"muster/internal/cli"
	"muster/internal/wire"
)

// nodeManyVerb is what the verbs on one machine or many have in common: how the
// machines are chosen, that somebody agrees, and how it goes over them.
type nodeManyVerb struct {
	operator
	selection
	verb   string // as after "muster node"
	batch  batch
	yes    bool
	dryRun bool
	resume string
}

const nodeManyHelp = `

Of several machines - named here, in a file with --from, or chosen from the fleet with
--all and filters as of 'muster node list' - --batch are in hand at once, and the verb
stops once more than --max-failures have failed. It shows first how many machines it is
about, and asks unless --yes; --dry-run shows all of them and does nothing. Which
machines they are is settled then: one that is not any more what it was chosen for is
left alone, and named. What is done is kept in a file until all are, and --resume goes
on from there.

Exits with 0 if all machines are done, 1 if one has failed, is left or left alone, or
nobody agreed, 2 if the command line makes no sense.`

// addMany adds the arguments and flags, with what is checked of them.
func (v *nodeManyVerb) addMany(c *kingpin.CmdClause, all verbs) {
	v.selection.add(c)
	v.addGoing(c)
	v.addChange(c, all)
	all.Check(c, v.check)
}

// addGoing adds the flags that say how it goes over the machines.
func (v *nodeManyVerb) addGoing(c *kingpin.CmdClause) {
	v.batch.add(c)
	c.Flag("resume", "Go on with what this file says is left.").PlaceHolder("FILE").StringVar(&v.resume)
	c.Flag("dry-run", "Show the machines, and do nothing.").BoolVar(&v.dryRun)
	c.Flag("yes", "Do not ask.").BoolVar(&v.yes)
}

// checkGoing reports all that is wrong with how it is to go over the machines.
func (v *nodeManyVerb) checkGoing(given bool) error {
	var errs []error
	if v.resume != "" && (given || v.batch.file != "") {
		errs = append(errs, errors.New("--resume takes machines and place from its file: leave out names, --from, filters and --progress"))
	}
	return errors.Join(append(errs, v.batch.check())...)
}

// check reports all that is wrong with the command line.
func (v *nodeManyVerb) check() error {
	err := v.checkGoing(v.given())
	if v.resume == "" {
		err = errors.Join(v.selection.check(), err)
	}
	return err
}

// over does one for each of the machines that choose returns, or that the file of
// --resume has left, if somebody agrees. The result is nil if nothing was begun.
func (v *nodeManyVerb) over(ctx context.Context, choose func(context.Context) (*choice, error), one func(context.Context, *campaign, target) error) (*batchResult, error) {
	c := &choice{}
	var work *campaign
	var err error
	if v.resume != "" {
		v.batch.file = v.resume
		work, err = readProgress(v.resume, v.verb)
	} else {
		// A machine that is away is judged by when it was heard of: it may come back
		// while somebody agrees, or before the rest is resumed.
		filter, _ := v.filter.parse(time.Now()) // checked with the command line
		c, err = choose(ctx)
		work = &campaign{ID: wire.NewID(), Verb: v.verb, Why: v.why, SeenBefore: filter.SeenBefore}
		if c != nil {
			work.Nodes, work.Seen = c.targets, c.seen
		}
	}
	if err != nil {
		return nil, err
	}
	if v.why == "" {
		v.why = work.Why
	}
	left := work.left()
	switch {
	case len(left) == 0 && v.resume != "":
		return nil, errors.New("all machines are done: nothing to resume")
	case v.dryRun:
		return nil, v.show(c, left)
	case len(left) == 0:
		return nil, v.print(&batchResult{ID: work.ID, Verb: work.Verb}, v.none)
	}
	if err := v.agreed(ctx, c, left); err != nil {
		return nil, err
	}
	result, err := v.batch.run(ctx, work, func(ctx context.Context, t target) error { return one(ctx, work, t) })
	said := result.Alone
	if v.batch.file != "" { // else the error says it: of a revocation that waits for the store, that is more than "not done"
		said = slices.Concat(said, result.Failed)
	}
	for _, f := range said {
		v.say("%s: %s", f.Node, f.Cause)
	}
	return result, err
}

// A dryRun is what a verb would touch, for programs.
type dryRun struct {
	Verb   string         `json:"verb"`
	Chosen int            `json:"chosen"`
	States map[string]int `json:"states,omitempty"`
	Nodes  []target       `json:"nodes"`
}

// show prints what the verb would touch: names that --from takes.
func (v *nodeManyVerb) show(c *choice, left []target) error {
	if len(left) == 0 {
		return v.print(&dryRun{Verb: v.verb, Nodes: []target{}}, v.none)
	}
	return v.print(&dryRun{Verb: v.verb, Chosen: len(left), States: c.states, Nodes: left}, func() error {
		for _, t := range left {
			if _, err := fmt.Println(t.Node); err != nil {
				return err
			}
		}
		v.say("would %s %s", v.verb, c.text(left))
		return nil
	})
}

// none says that nobody was chosen.
func (v *nodeManyVerb) none() error {
	v.say("no machine fits: nothing to do")
	return nil
}

// agreed shows what the verb will touch and asks, unless it is one machine that was
// named here.
func (v *nodeManyVerb) agreed(ctx context.Context, c *choice, left []target) error {
	if v.yes || len(left) == 1 && len(v.names) == 1 {
		return nil
	}
	question := fmt.Sprintf("%s %s?", v.verb, c.text(left))
	if !cli.IsTerminal(os.Stdin) {
		return cli.Usage(program+" node "+v.verb, fmt.Errorf("%s Nobody is there to ask: say --yes", question))
	}
	return confirm(ctx, os.Stdin, os.Stderr, question)
}

// tell prints what has become of the machines, done being what each that is done
// is now.
func (v *nodeManyVerb) tell(r *batchResult, err error, done string) error {
	if r == nil {
		return err
	}
	tell := v.print
	if err == nil {
		tell = v.printDone
	}
	return errors.Join(err, tell(r, func() error {
		switch {
		case r.Chosen == 1 && r.Done == 1 && len(v.names) == 1:
			v.say("%s %s", v.names[0], done)
		case r.Done > 0:
			v.say("%s", r.text(done))
		}
		return nil
	}))
}

// errNotAgreed means that a person said no.
var errNotAgreed = errors.New("not done: nobody agreed")

// confirm asks a person, who has to answer y or yes.
func confirm(ctx context.Context, in io.Reader, out io.Writer, question string) error {
	if _, err := fmt.Fprintf(out, "%s [y/N] ", cli.Printable(question)); err != nil {
		return err
	}
	answered := make(chan string, 1)
	go func() { // ends with the process if nobody answers
		line, _ := bufio.NewReader(in).ReadString('\n')
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case answer := <-answered:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return errNotAgreed
	}
}
