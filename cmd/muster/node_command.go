package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// nodeCommandVerb is one of the verbs that a node itself carries out.
type nodeCommandVerb struct {
	nodeManyVerb
	done    string // what has happened, by each node
	after   string // what it has done then, with --wait
	token   string
	wait    bool
	waitFor string
	patient bool // --wait-for was given
}

const nodeCommandLong = `

The command is proven to the node by the shared secret of its token, and done once
however often it is sent.

With --wait a machine counts as done when %s,
and as failed if that takes longer than --wait-for, or if it is refused: so --batch,
--pause-between and --max-failures keep a bad change from the rest of the fleet.`

func addNodeCommands(parent *kingpin.CmdClause, all verbs) {
	addNodeCommand(parent, all, wire.VerbReprovision, "Send machines back to be provisioned again.",
		`The machine enrolls again with its token and its own key, which costs no use of a
limited token, and gets its configuration anew. It is back within a second.

  muster node reprovision web1.example.net --why 'rack 4 was moved'
  muster node reprovision --match 'web*.example.net' --wait --batch 10 --max-failures 0
  muster node reprovision --all --wait --yes`, "goes back to provisioning mode", "is provisioned again")
	addNodeCommand(parent, all, wire.VerbReconfigure, "Give machines their configuration anew.",
		`The machine asks for its configuration as it is decided now, puts it in force and
confirms it. It gets no new certificate, unless it is time for one.

  muster node reconfigure web1.example.net --wait
  muster node reconfigure --site ams1 --wait --batch 20 --max-failures 2`, "asks for its configuration", "has confirmed its configuration")
	addNodeCommand(parent, all, wire.VerbRestart, "Start the agents of machines anew.",
		`The agent takes up a new version of its program, if there is one at its place.

  muster node restart web1.example.net --why 'new version'
  muster node restart --all --wait --batch 100 --pause-between 30s`, "starts its agent anew", "is in the fleet again")
	addNodeCommand(parent, all, wire.VerbShutdown, "Stop the agents of machines.",
		`The agent ends with status 0 and stays away until somebody, or the next boot, starts it.

  muster node shutdown web1.example.net --why 'power work'
  muster node shutdown --site ams1 --dry-run`, "stops its agent", "has said that it ends")
}

func addNodeCommand(parent *kingpin.CmdClause, all verbs, verb wire.Verb, help, long, done, after string) {
	v := &nodeCommandVerb{done: done, after: after}
	v.verb = string(verb)
	c := parent.Command(v.verb, help).HelpLong(long + fmt.Sprintf(nodeCommandLong, "it "+after) + nodeManyHelp)
	c.Flag("wait", "Wait until each machine "+after+".").BoolVar(&v.wait)
	c.Flag("wait-for", "How long for each, as 90s or 5m.").Default("2m").IsSetByUser(&v.patient).StringVar(&v.waitFor)
	c.Flag("node-token", "Token that the machines have, if it is not the one they enrolled with.").PlaceHolder("FILE").StringVar(&v.token)
	v.addMany(c, all)
	all.Check(c, func() error {
		_, err := v.patience()
		if v.patient && !v.wait { // who believes that they have waited goes on too early
			err = errors.Join(err, errors.New("--wait-for without --wait: nothing would be waited for"))
		}
		return err
	})
	all[c.FullCommand()] = v.run
}

// patience returns how long to wait for each machine.
func (v *nodeCommandVerb) patience() (time.Duration, error) {
	return cli.DurationOf("wait-for", v.waitFor, time.Second, cli.Year)
}

// commanded are the states of nodes that can have commands.
var commanded = []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned}

func (v *nodeCommandVerb) run(ctx context.Context) error {
	patience, err := v.patience()
	if err != nil {
		return err
	}
	var token string
	if v.token != "" {
		if token, err = readTokenFile(ctx, v.token); err != nil {
			return fmt.Errorf("--node-token: %w", err)
		}
		if token == "" {
			return fmt.Errorf("--node-token: %s: empty, want the token that the machines have", v.token)
		}
		if _, err := jwt.Peek(token); err != nil { // before any machine is told anything
			return fmt.Errorf("--node-token: %s: %w", v.token, err)
		}
	}
	client, err := v.client(ctx)
	if err != nil {
		return err
	}
	done := v.done
	var back *returns
	if v.wait && !v.dryRun {
		done = v.after
		stop, r, err := awaitReturns(ctx, client, wire.Verb(v.verb))
		if err != nil {
			return err
		}
		defer stop()
		back = r
	}
	secret := wire.Secret(token)
	choose := func(ctx context.Context) (*choice, error) { return v.choose(ctx, &v.operator, commanded) }
	result, err := v.over(ctx, choose, func(ctx context.Context, p *campaign, t target) error {
		tell := func(command string) (bool, error) {
			return order(ctx, client, t.Node, v.verb, httpapi.NodeCommand{ID: command, Token: secret, Why: v.why})
		}
		if back == nil {
			_, err := tell(p.ID)
			return err
		}
		return back.await(ctx, t.Node, p.ID, patience, tell)
	})
	return v.tell(result, err, done)
}

// A node that is not there may be on its way back from the verb before this one,
// or between two connections: it is asked for so often, so far apart; chosen.
const (
	awayTries = 3
	awayAgain = time.Second
)

// order sends a command to a node.
func order(ctx context.Context, client *httpapi.Client, id wire.Identity, verb string, c httpapi.NodeCommand) (repeated bool, err error) {
	for try := 1; ; try++ {
		var taken provisioner.Obeyed
		err := client.Do(ctx, http.MethodPost, "/v1/nodes/"+string(id)+"/"+verb, c, &taken)
		var away *httpapi.Problem
		if !errors.As(err, &away) || away.Status != http.StatusServiceUnavailable || away.Code != "" || try == awayTries || !sleep(ctx, awayAgain) {
			return taken.Repeated, err
		}
	}
}
