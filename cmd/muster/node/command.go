package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/signing"
	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/httpapi"
)

const commandHelp = `

The node verifies the command with the shared secret of its token, and carries it
out once, however often it is sent. If the node now has another token than at its
enrollment, give that token with --token-file. A Choria server wants the shared
secret of its token, from --secret-file.

With --wait, a node is done when it %s, and has
failed after --timeout, or if it is refused. So --concurrency and --max-failures keep
a bad change away from the rest of the fleet.`

// command is a verb that the node carries out.
type command struct {
	order
	does, after string // descriptions of the node: at once, and after --wait
	token       string
	secretFile  string
	wait        bool
	waitFor     time.Duration
	waitForSet  bool
}

func addCommands(parent *kingpin.CmdClause, all cli.Verbs) {
	addCommand(parent, all, wire.VerbReprovision, "Provision nodes again.",
		`The node enrolls again with its token and its key, and gets a new certificate and
configuration. That takes about a second. It takes no further use of a limited
token.

  muster node reprovision web1.example.net --why 'rack 4 was moved'
  muster node reprovision --match 'web*.example.net' \
    --wait --concurrency 10 --max-failures 0
  muster node reprovision --all --wait --yes`, "goes back to provisioning mode", "is provisioned again")
	addCommand(parent, all, wire.VerbReconfigure, "Give nodes their configuration again.",
		`The node asks for its configuration as the policy decides now, applies and confirms
it. It gets a new certificate only if that is due.

  muster node reconfigure web1.example.net --wait
  muster node reconfigure --site ams1 --wait --concurrency 20 --max-failures 2`,
		"asks for its configuration", "has confirmed its configuration")
	addCommand(parent, all, wire.VerbRestart, "Restart the agents of nodes.",
		`The agent starts again, as a new version if the program was replaced.

  muster node restart web1.example.net --why 'new version'
  muster node restart --all --wait --concurrency 10`, "starts its agent anew", "is in the fleet again")
	addCommand(parent, all, wire.VerbShutdown, "Stop the agents of nodes.",
		`The agent ends with status 0, until it is started again or the machine boots.

  muster node shutdown web1.example.net --why 'power work'
  muster node shutdown --site ams1 --dry-run`, "stops its agent", "has reported that it stops")
}

func addCommand(parent *kingpin.CmdClause, all cli.Verbs, name wire.Verb, help, long, does, after string) {
	v := &command{order: order{verb: string(name), selection: &filter{}}, does: does, after: after}
	c := parent.Command(v.verb, help).HelpLong(long + fmt.Sprintf(commandHelp, after) + orderHelp)
	cli.Flag(c, "wait").BoolVar(&v.wait)
	cli.Duration(cli.Flag(c, "timeout").Default("2m").IsSetByUser(&v.waitForSet), &v.waitFor, time.Second, span.Year)
	cli.Flag(c, "token-file").StringVar(&v.token)
	cli.Flag(c, "secret-file").StringVar(&v.secretFile)
	v.addFlags(c, all)
	all.Check(c, func() error {
		if v.waitForSet && !v.wait {
			return errors.New("--timeout without --wait has no effect: give both")
		}
		return nil
	})
	all[c.FullCommand()] = v.run
}

func (v *command) run(ctx context.Context) error {
	token, err := readNodeToken(v.token)
	if err != nil {
		return verb.Flag("token-file", err)
	}
	var secret []byte
	if v.secretFile != "" {
		if secret, err = keyfile.ReadLine(v.secretFile, inputfile.Typed); err != nil {
			return verb.Flag("secret-file", err)
		}
	}
	client, err := v.Client()
	if err != nil {
		return err
	}
	send := func(ctx context.Context, w *targets, t target) error {
		return send(ctx, client, pathOf(t.Node, "/"+v.verb), httpapi.NodeCommand{
			ID:     w.ID,
			Token:  token,
			Secret: wire.Secret(secret),
			Why:    v.Why,
		})
	}
	if !v.wait || v.DryRun {
		return v.order.run(ctx, send, func() string { return v.does })
	}
	watch, err := startWatch(ctx, client)
	if err != nil {
		return err
	}
	defer watch.stop()
	return v.order.run(ctx, func(ctx context.Context, w *targets, t target) error {
		return watch.await(ctx, t.Node, w.ID, v.waitFor, func() error { return send(ctx, w, t) })
	}, func() string { return v.after })
}

// readNodeToken reads and checks the token of --token-file, if given.
func readNodeToken(path string) (wire.Secret, error) {
	if path == "" {
		return "", nil
	}
	token, err := signing.ReadToken(path)
	if err != nil {
		return "", err
	}
	if token == "" {
		return "", fmt.Errorf("%s: empty, want the token of the nodes", path)
	}
	if _, err := jwt.Peek(token); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return wire.Secret(token), nil
}

// A node without a connection may be restarting or reconnecting: the command is sent up to three times, a second apart.
const (
	awayTries = 3
	awayAgain = time.Second
)

func send(ctx context.Context, client *httpapi.Client, path string, c httpapi.NodeCommand) error {
	for try := 1; ; try++ {
		err := client.Do(ctx, http.MethodPost, path, c, nil)
		var away *httpapi.Problem
		if !errors.As(err, &away) || away.Status != http.StatusServiceUnavailable || away.Code != "" ||
			try == awayTries || !span.Sleep(ctx, awayAgain) {
			return err
		}
	}
}
