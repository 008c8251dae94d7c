package servercmd

import (
	"context"
	"fmt"
	"os"

	"muster/internal/cli"
	"muster/server"
)

type runVerb struct {
	files
	log cli.LogFlags
}

const runHelp = `Without a usable configuration, and with a token signed with --default, the node
is provisioned: it sends the token, a certificate request and its facts, and
gets a certificate and a configuration. Then, and from then on, it keeps a
mutually authenticated connection to the fleet. A provisioner may have it stop,
or end with status 1 for the service manager to start it again. A directory with
the key and certificate of another node is not provisioned over.

  %[1]s
  %[1]s --token-file provisioning.jwt --identity web1.example.net \
    --ssl-dir web1 --config web1/server.conf

If --token-file is not given, the token is /etc/provisioning.jwt, else
/etc/choria/provisioning.jwt. If --identity is not given, the name is that of
the configuration, else the host's. Files that change it reads by itself.

Exits with 0 when it was told to stop, by SIGTERM, SIGHUP or an operator, 1 if
it cannot go on, and after an order to restart, for a service manager to start
it again, 2 if the command line makes no sense.`

// AddRun adds the verb run: the agent.
func AddRun(to Parent, all Verbs) {
	v := &runVerb{}
	c := to.Command("run", "Run the agent of a node: it enrolls, and stays in the fleet.")
	c.HelpLong(fmt.Sprintf(runHelp, called(to, "run")))
	v.add(c)
	v.log.Add(c)
	all[c.FullCommand()] = cli.CleansUp(v.run) // the reader of the log may end; the agent goes on
}

func (v *runVerb) run(ctx context.Context) error {
	v.cfg.Log, v.cfg.Level = v.log.New(os.Stderr)
	v.cfg.Version = cli.Version()
	s, err := server.New(v.cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
