package ca

import (
	"context"
	"fmt"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/inputfile"
	"muster/internal/setup"
)

const puppetHelp = `Makes the authority of Puppet agents in the directory puppet-ca beside the
configuration: an issuing certificate under the same root, the bundle that agents
get, and a revocation list of the root that is good as long as the root. The root's
key is needed once.

The command prints lines for provisioner.yaml. Put them there, with the names and
addresses under which agents reach the provisioner, and restart it. Running the
command again makes nothing new.

  muster ca puppet
  muster ca puppet --root-key /media/stick/root-key.pem`

type puppetVerb struct {
	setup.Puppet
	keys verb.KeyFlags
}

func addPuppet(parent *kingpin.CmdClause, all cli.Verbs) {
	p := &puppetVerb{}
	c := parent.Command("puppet", "Make the certificate authority of Puppet agents.").HelpLong(puppetHelp)
	verb.Config(c, &p.Config)
	cli.Flag(c, "root-key").StringVar(&p.RootKey)
	p.keys.AddFlags(c)
	all[c.FullCommand()] = cli.CleansUp(p.run)
}

func (p *puppetVerb) run(ctx context.Context) error {
	p.Keys = p.keys.Ring(ctx)
	p.Keys.Keys = inputfile.Typed
	defer p.Keys.Forget()
	made, err := p.Make()
	if err != nil {
		return verb.OrNoSetup(p.Config, err)
	}
	if made.Found {
		verb.Say("%s exists and is used as it is", made.Dir)
	}
	_, err = fmt.Fprintf(os.Stdout, `%s is ready. Put this in %s, in place of `+"`puppet:`"+` if it is there:

%s
Then:

  muster provisioner run --config %s --validate
  restart the provisioner

Keep %s somewhere off this machine.
`, verb.Quoted(made.Dir), verb.Quoted(p.Config), made.Lines, verb.Quoted(p.Config), verb.Quoted(made.RootKey))
	return verb.Unprinted(verb.Quoted(made.Dir)+" is ready", err)
}
