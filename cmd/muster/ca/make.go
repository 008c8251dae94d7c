package ca

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/inputfile"
	"muster/internal/setup"
)

const rollHelp = `Makes a new root and issuing certificate in a directory beside the configuration. A
cross certificate of the old root vouches for the new root, so that nodes and tokens
that know only the old root still work. The key of the old root is needed once.

The command prints new lines for 'ca:' in provisioner.yaml. Put them there and
restart the provisioner. It then issues from the new authority and trusts both; its
log says when no valid certificate of the old one is left. Running the command again
before provisioner.yaml is changed makes nothing new.

  muster ca roll
  muster ca roll --root-key /media/stick/root-key.pem`

func addRoll(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("roll", "Make a new certificate authority in place of the old one.").HelpLong(rollHelp)
	addMaker(c, all, roll)
}

// addMaker adds the flags of a verb that makes an authority.
func addMaker(c *kingpin.CmdClause, all cli.Verbs, run func(*setup.Maker) error) {
	m := &setup.Maker{}
	var keys verb.KeyFlags
	verb.Config(c, &m.Config)
	cli.Flag(c, "root-key").StringVar(&m.RootKey)
	keys.AddFlags(c)
	all[c.FullCommand()] = cli.CleansUp(func(ctx context.Context) error {
		m.Keys = keys.Ring(ctx)
		m.Keys.Keys = inputfile.Typed
		defer m.Keys.Forget()
		return run(m)
	})
}

func roll(m *setup.Maker) error {
	rolled, err := m.Roll()
	if err != nil {
		return verb.OrNoSetup(m.Config, err)
	}
	if rolled.Found {
		verb.Say("%s exists and is used as it is", rolled.Dir)
	}
	return show(os.Stdout, m.Config, rolled)
}

func show(w io.Writer, config string, rolled *setup.Rolled) error {
	lines, err := rolled.Lines()
	if err != nil {
		return err
	}
	brokers := ""
	if rolled.Brokers {
		brokers = "  renew the certificate of each broker with `muster broker certificate`, " +
			"and make the broker reload\n"
	}
	_, err = fmt.Fprintf(w, `%s is ready. Put this in place of `+"`ca:`"+` in %s:

%s
Then:

  muster provisioner run --config %s --validate
  restart the provisioner
%s  sign new tokens with --ca %s; those that pin the old root are good as long as ca.previous names it

Keep %s somewhere off this machine.
`, verb.Quoted(rolled.Dir), verb.Quoted(config), lines, verb.Quoted(config), brokers,
		verb.Quoted(filepath.Join(rolled.Dir, "root.pem")), verb.Quoted(rolled.RootKey))
	return verb.Unprinted(verb.Quoted(rolled.Dir)+" is ready", err)
}

const puppetHelp = `Makes the authority of Puppet agents in the directory puppet-ca beside the
configuration: an issuing certificate under the same root, the bundle that agents
get, and a revocation list of the root that is good as long as the root. The root's
key is needed once.

The command prints lines for provisioner.yaml. Put them there, with the names and
addresses under which agents reach the provisioner, and restart it. Running the
command again makes nothing new.

  muster ca puppet
  muster ca puppet --root-key /media/stick/root-key.pem`

func addPuppet(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("puppet", "Make the certificate authority of Puppet agents.").HelpLong(puppetHelp)
	addMaker(c, all, makePuppet)
}

func makePuppet(m *setup.Maker) error {
	made, err := m.Puppet()
	if err != nil {
		return verb.OrNoSetup(m.Config, err)
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
`, verb.Quoted(made.Dir), verb.Quoted(m.Config), made.Lines, verb.Quoted(m.Config), verb.Quoted(made.RootKey))
	return verb.Unprinted(verb.Quoted(made.Dir)+" is ready", err)
}
