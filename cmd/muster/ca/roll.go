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

// roll holds the flags of "muster ca roll".
type roll struct {
	setup.Roll
	keys verb.KeyFlags
}

func addRoll(parent *kingpin.CmdClause, all cli.Verbs) {
	r := &roll{}
	c := parent.Command("roll", "Make a new certificate authority in place of the old one.").HelpLong(rollHelp)
	verb.Config(c, &r.Config)
	cli.Flag(c, "root-key").StringVar(&r.RootKey)
	r.keys.AddFlags(c)
	all[c.FullCommand()] = cli.CleansUp(r.run)
}

func (r *roll) run(ctx context.Context) error {
	r.Keys = r.keys.Ring(ctx)
	r.Keys.Keys = inputfile.Typed
	defer r.Keys.Forget()
	rolled, err := r.Make()
	if err != nil {
		return verb.OrNoSetup(r.Config, err)
	}
	if rolled.Found {
		verb.Say("%s exists and is used as it is", rolled.Dir)
	}
	return r.show(os.Stdout, rolled)
}

func (r *roll) show(w io.Writer, rolled *setup.Rolled) error {
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
`, verb.Quoted(rolled.Dir), verb.Quoted(r.Config), lines, verb.Quoted(r.Config), brokers,
		verb.Quoted(filepath.Join(rolled.Dir, "root.pem")), verb.Quoted(rolled.RootKey))
	return verb.Unprinted(verb.Quoted(rolled.Dir)+" is ready", err)
}
