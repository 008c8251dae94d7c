// Package servercmd has the verbs of the agent, in both `muster` and `muster-server`. It links neither OPA nor
// nats-server; a test of cmd/muster-server checks this.
package servercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/sdnotify"
	"muster/internal/wire"
	"muster/server"
	"muster/server/certificates"
	"muster/server/socket"
)

// Verbs maps full names to verbs, for the command to dispatch.
type Verbs = cli.Verbs

// A Parent is the program or a command that gets a verb.
type Parent interface {
	Command(name, help string) *kingpin.CmdClause
}

func called(to Parent, verb string) string {
	switch p := to.(type) {
	case *kingpin.Application:
		return p.Name + " " + verb
	case *kingpin.CmdClause:
		return "muster " + p.FullCommand() + " " + verb
	}
	return verb
}

// files are the flags of all verbs; none is a secret.
type files struct {
	cfg server.Config
}

func (f *files) add(c *kingpin.CmdClause) {
	f.addPaths(c)
	cli.Flag(c, "token-file").StringVar(&f.cfg.TokenFile)
	cli.Flag(c, "identity").StringVar(&f.cfg.Identity)
	cli.Flag(c, "facts").StringVar(&f.cfg.FactsFile)
	c.Validate(func(*kingpin.CmdClause) error {
		if f.cfg.Identity == "" {
			return nil
		}
		if _, err := wire.ParseName(f.cfg.Identity); err != nil {
			return fmt.Errorf("--identity: %w", err)
		}
		return nil
	})
}

// addPaths adds the flags that lead to the agent and its files.
func (f *files) addPaths(c *kingpin.CmdClause) {
	cli.Flag(c, "config").Default(server.DefaultConfFile).StringVar(&f.cfg.ConfFile)
	cli.Flag(c, "ssl-dir").Default(server.DefaultSSLDir).StringVar(&f.cfg.SSLDir)
	cli.Flag(c, "socket").Envar("MUSTER_AGENT_SOCKET").StringVar(&f.cfg.Socket)
	c.Action(func(*kingpin.ParseContext) error {
		f.cfg.Socket = cmp.Or(f.cfg.Socket, server.DefaultSocket(f.cfg.SSLDir))
		return nil
	})
}

// ask asks the running agent.
func (f *files) ask(ctx context.Context, order certificates.Order) (*server.Answer, error) {
	var answer server.Answer
	err := socket.Ask(ctx, f.cfg.Socket, order, &answer)
	if errors.Is(err, socket.ErrNoAgent) {
		err = fmt.Errorf("%w: start it (systemctl start muster-server), or name its socket with --socket", err)
	} else if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return &answer, err
}

type runVerb struct {
	files
	log cli.LogFlags
}

const runHelp = `If there is no usable configuration, and the token is signed with --default, the
agent provisions the node: it sends the token, a certificate request and its
facts, and gets a certificate and a configuration. From then on it keeps a
mutually authenticated connection to the fleet. An operator may stop it, or end
it with status 1 for the service manager to restart it. The agent does not
replace the key and certificate of another node.

  %[1]s
  %[1]s --token-file provisioning.jwt --identity web1.example.net \
    --ssl-dir web1 --config web1/server.conf

Without --token-file, the token is %[2]s, else
%[3]s. Without --identity, the name is that of the
configuration, else the host name. The agent notices changed files by itself.

Exits with 0 after SIGTERM, SIGHUP or an operator's stop, 1 if it cannot go on,
or for a restart that an operator ordered, 2 if the command line is wrong.`

// AddRun adds the verb run: the agent.
func AddRun(to Parent, all Verbs) {
	v := &runVerb{}
	c := to.Command("run", "Run the agent of a node: it enrolls, and stays in the fleet.")
	c.HelpLong(fmt.Sprintf(runHelp, called(to, "run"), server.DefaultTokenFiles[0], server.DefaultTokenFiles[1]))
	v.add(c)
	v.log.Add(c)
	all[c.FullCommand()] = cli.CleansUp(v.run) // if the reader of the log ends, the agent continues
}

func (v *runVerb) run(ctx context.Context) error {
	v.cfg.Log, v.cfg.Level = v.log.New(cli.LogWriter())
	v.cfg.Version = cli.Version()
	manager := sdnotify.New(v.cfg.Log)
	defer manager.Stopping()
	v.cfg.Alive = manager.Alive
	v.cfg.Observe = func(e server.Event) {
		if e.Kind == server.EventMode { // the files were read; an enrollment may take days
			manager.Ready()
		}
	}
	s, err := server.New(v.cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
