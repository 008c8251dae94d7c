package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// nodeCommandVerb is one of the verbs that a node itself carries out.
type nodeCommandVerb struct {
	operator
	verb  wire.Verb
	done  string // what has happened, by how many nodes
	token string

	names  []string
	from   string
	batch  batch
	yes    bool
	resume string
}

const nodeCommandLong = `

The command is proven to the node by the shared secret of its token, and done once
however often it is sent. Of several nodes, named here or in a file with --from, --batch
are told at once, and the verb stops once more than --max-failures have failed. What
is done is kept in a file until all are, and --resume goes on from there.`

func addNodeCommands(parent *kingpin.CmdClause, all verbs) {
	addNodeCommand(parent, all, wire.VerbReprovision, "Send machines back to be provisioned again.",
		`The machine enrolls again with its token and its own key, which costs no use of a
limited token, and gets its configuration anew. It is back within a second.`, "goes back to provisioning mode")
	addNodeCommand(parent, all, wire.VerbReconfigure, "Give machines their configuration anew.",
		`The machine asks for its configuration as it is decided now, puts it in force and
confirms it. It gets no new certificate, unless it is time for one.`, "asks for its configuration")
	addNodeCommand(parent, all, wire.VerbRestart, "Start the agents of machines anew.",
		`The agent takes up a new version of its program, if there is one at its place.`, "starts its agent anew")
	addNodeCommand(parent, all, wire.VerbShutdown, "Stop the agents of machines.",
		`The agent ends with status 0 and stays away until somebody, or the next boot, starts it.`, "stops its agent")
}

func addNodeCommand(parent *kingpin.CmdClause, all verbs, verb wire.Verb, help, long, done string) {
	v := &nodeCommandVerb{verb: verb, done: done}
	c := parent.Command(string(verb), help).HelpLong(long + nodeCommandLong)
	c.Arg("nodes", "Their names.").StringsVar(&v.names)
	c.Flag("from", "File with names, one a line; - is standard input.").PlaceHolder("FILE").StringVar(&v.from)
	c.Flag("token", "Token that the machines have, if it is not the one they enrolled with.").PlaceHolder("FILE").StringVar(&v.token)
	c.Flag("batch", "How many machines are told at once.").Default("50").IntVar(&v.batch.size)
	c.Flag("pause-between", "Wait between two batches, as 10s.").Default("0s").DurationVar(&v.batch.pause)
	c.Flag("max-failures", "Stop once more machines than this have failed.").Default("10").IntVar(&v.batch.maxFailures)
	c.Flag("progress", "File that keeps what is done; default a new one here for more than one machine.").PlaceHolder("FILE").StringVar(&v.batch.file)
	c.Flag("resume", "Go on with what this file says is left.").PlaceHolder("FILE").StringVar(&v.resume)
	c.Flag("yes", "Do not ask.").BoolVar(&v.yes)
	v.addChange(c)
	all[c.FullCommand()] = v.run
}

func (v *nodeCommandVerb) run(ctx context.Context) error {
	if err := v.check(); err != nil {
		return cli.Usage(program+" node "+string(v.verb), err)
	}
	work, err := v.work()
	if err != nil {
		return err
	}
	left := work.left()
	if len(left) == 0 {
		return errors.New("no machines to command: all are done")
	}
	if err := v.agreed(ctx, left); err != nil {
		return err
	}
	var token []byte
	if v.token != "" {
		if token, err = os.ReadFile(v.token); err != nil {
			return err
		}
	}
	result, err := v.batch.run(ctx, work, func(ctx context.Context, id wire.Identity) error {
		var answer provisioner.Obeyed
		return v.ask(ctx, http.MethodPost, "/v1/nodes/"+string(id)+"/"+string(v.verb),
			httpapi.NodeCommand{ID: work.ID, Token: wire.Secret(strings.TrimSpace(string(token))), Why: v.why}, &answer)
	})
	if perr := v.print(result, func() error { v.tell(result, left); return nil }); perr != nil {
		err = errors.Join(err, perr)
	}
	return err
}

// check says what about the command line makes no sense.
func (v *nodeCommandVerb) check() error {
	var errs []error
	if v.resume == "" && len(v.names) == 0 && v.from == "" {
		errs = append(errs, errors.New("name machines, or a file of names with --from"))
	}
	if v.resume != "" && (len(v.names) > 0 || v.from != "" || v.batch.file != "") {
		errs = append(errs, errors.New("--resume takes names and place from its file: leave out names, --from and --progress"))
	}
	for _, name := range v.names {
		_, err := wire.ParseIdentity(name)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, v.batch.check())...)
}

// work returns what is to be done: what a file says, or all that is named.
func (v *nodeCommandVerb) work() (*campaign, error) {
	if v.resume != "" {
		v.batch.file = v.resume
		return readProgress(v.resume, v.verb)
	}
	names, err := identitiesOf(v.names, v.from)
	if err != nil {
		return nil, err
	}
	return &campaign{ID: wire.NewID(), Verb: v.verb, Nodes: names}, nil
}

// agreed shows what the verb will touch and asks, unless it is one machine that was
// named here.
func (v *nodeCommandVerb) agreed(ctx context.Context, left []wire.Identity) error {
	if v.yes || len(left) == 1 && len(v.names) == 1 {
		return nil
	}
	const shown = 10
	list := make([]string, 0, shown+1)
	for _, id := range left[:min(shown, len(left))] {
		list = append(list, string(id))
	}
	if more := len(left) - shown; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	question := fmt.Sprintf("%s %d machines: %s?", v.verb, len(left), strings.Join(list, ", "))
	if !cli.IsTerminal(os.Stdin) {
		return fmt.Errorf("%s Nobody is there to ask: say --yes", question)
	}
	return confirm(ctx, os.Stdin, os.Stderr, question)
}

// tell says what has happened.
func (v *nodeCommandVerb) tell(r *batchResult, left []wire.Identity) {
	for _, f := range r.Failed {
		cli.Say(os.Stderr, program, "%s: %s", f.Node, f.Cause)
	}
	if len(left) == 1 && r.Done == 1 {
		v.say("%s %s", left[0], v.done)
		return
	}
	v.say("%d of %d machines: each %s", r.Done, len(left), v.done)
}
