package ca

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/setup"
)

const rollHelp = `Makes a new root and issuing CA in a directory beside the configuration, and has
the old root vouch for the new one by a cross certificate, so that nodes and
tokens that know only the old root go on. The key of the old root is needed
once. Prints the lines that provisioner.yaml is to say, or, with --write, puts
them there; the file before is kept.

Restart the provisioner then. It issues from the new authority, trusts both, and
drops the old one when no live certificate needs it. Running this again before
provisioner.yaml is changed makes nothing new.

  muster ca roll
  muster ca roll --write --root-key /media/stick/root-key.pem`

// roll is what the flags of "muster ca roll" say.
type roll struct {
	setup.Roll
	keys           verb.KeyFlags
	encrypt, write bool
}

func addRoll(parent *kingpin.CmdClause, all cli.Verbs) {
	r := &roll{}
	c := parent.Command("roll", "Make a new certificate authority that takes over from the old one.").HelpLong(rollHelp)
	verb.Config(c, "Configuration file.", &r.Config)
	c.Flag("root-key", "Key of the old root; root-key.pem beside its certificate if not given.").PlaceHolder("FILE").StringVar(&r.RootKey)
	c.Flag("dir", "Directory to make; ca-2 and so on beside the configuration if not given.").PlaceHolder("DIR").StringVar(&r.Dir)
	c.Flag("encrypt-keys", "Encrypt the new keys also if the old ones are not.").BoolVar(&r.encrypt)
	c.Flag("write", "Change provisioner.yaml, and keep the file before.").BoolVar(&r.write)
	r.keys.AddFlags(c)
	all[c.FullCommand()] = cli.CleansUp(r.run)
}

func (r *roll) run(ctx context.Context) error {
	ring := r.keys.Ring(ctx)
	r.Keys = &ring
	defer ring.Forget()
	if r.encrypt {
		secret, err := r.keys.Choose(ctx)
		if err != nil {
			return err
		}
		defer clear(secret)
		r.Passphrase = secret
		ring.Remember(secret) // the new keys are read again, and --passphrase-file may be a pipe
	}
	rolled, err := r.Make()
	if err != nil {
		return verb.OrNoSetup(r.Config, err)
	}
	if rolled.Found {
		verb.Say("%s was made before and is used as it is", rolled.Dir)
	}
	if !r.write {
		return r.paste(os.Stdout, rolled)
	}
	kept, err := rolled.Write(daemon.Options{Version: cli.Version()}) //nolint:contextcheck // bounded by the time-out of the policy's tests
	if errors.Is(err, conffile.ErrEdit) {
		return errors.Join(fmt.Errorf("%w: put the lines there by hand", err), r.paste(os.Stdout, rolled))
	}
	if err != nil {
		return err
	}
	verb.Say("%s is changed, the file before is %s", r.Config, kept)
	return verb.Unprinted(verb.Quoted(r.Config)+" is changed", r.next(os.Stdout, rolled))
}

// paste prints the lines for provisioner.yaml.
func (r *roll) paste(w io.Writer, rolled *setup.Rolled) error {
	_, err := fmt.Fprintf(w, `%s is ready. Put this in place of `+"`ca:`"+` in %s, or let --write do it:

%s
`, verb.Quoted(rolled.Dir), verb.Quoted(r.Config), rolled.Lines())
	if err != nil {
		return err
	}
	return r.next(w, rolled)
}

// next prints how to go on.
func (r *roll) next(w io.Writer, rolled *setup.Rolled) error {
	brokers := ""
	if rolled.Brokers {
		brokers = "  give each broker another certificate with `muster broker certificate`, and have it read that\n"
	}
	_, err := fmt.Fprintf(w, `Then:

  muster provisioner run --config %s --check
  restart the provisioner
%s  sign new tokens with --ca %s; those that pin the old root are good as long as ca.previous names it

Keep %s somewhere off this machine.
`, verb.Quoted(r.Config), brokers, verb.Quoted(filepath.Join(rolled.Dir, "root.pem")), verb.Quoted(rolled.RootKey))
	return err
}
