package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/conffile"
	"muster/internal/daemon"
)

// rollVerb is "muster ca roll".
type rollVerb struct {
	roll    daemon.Roll
	keys    keyFlags
	encrypt bool
	write   bool
}

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

func addCARoll(parent *kingpin.CmdClause, all verbs) {
	v := &rollVerb{}
	c := parent.Command("roll", "Make a new certificate authority that takes over from the old one.").HelpLong(rollHelp)
	c.Flag("config", "Configuration file."+configHelp).Default(defaultConfig).PlaceHolder("FILE").StringVar(&v.roll.Config)
	c.Flag("root-key", "Key of the old root; root-key.pem beside its certificate if not given.").PlaceHolder("FILE").StringVar(&v.roll.RootKey)
	c.Flag("dir", "Directory to make; ca-2 and so on beside the configuration if not given.").PlaceHolder("DIR").StringVar(&v.roll.Dir)
	c.Flag("encrypt-keys", "Encrypt the new keys also if the old ones are not.").BoolVar(&v.encrypt)
	c.Flag("write", "Change provisioner.yaml, and keep the file before.").BoolVar(&v.write)
	v.keys.add(c)
	all[c.FullCommand()] = cli.CleansUp(v.run)
}

func (v *rollVerb) run(ctx context.Context) error {
	ring := v.keys.ring(ctx)
	v.roll.Keys = &ring
	defer ring.Forget()
	if v.encrypt {
		secret, err := v.keys.choose(ctx)
		if err != nil {
			return err
		}
		defer clear(secret)
		v.roll.Passphrase = secret
		ring.Remember(secret) // the new keys are read again, and --passphrase-file may be a pipe
	}
	rolled, err := v.roll.Make()
	if err != nil {
		return orNoSetup(v.roll.Config, err)
	}
	if rolled.Found {
		cli.Say(os.Stderr, program, "%s was made before and is used as it is", rolled.Dir)
	}
	if !v.write {
		return v.paste(os.Stdout, rolled)
	}
	kept, err := rolled.Write(daemon.Options{Version: cli.Version()}) //nolint:contextcheck // bounded by the time-out of the policy's tests
	if errors.Is(err, conffile.ErrEdit) {
		return errors.Join(fmt.Errorf("%w: put the lines there by hand", err), v.paste(os.Stdout, rolled))
	}
	if err != nil {
		return err
	}
	cli.Say(os.Stderr, program, "%s is changed, the file before is %s", v.roll.Config, kept)
	return unprinted(quoted(v.roll.Config)+" is changed", v.next(os.Stdout, rolled))
}

// paste prints the lines for provisioner.yaml.
func (v *rollVerb) paste(w io.Writer, rolled *daemon.Rolled) error {
	_, err := fmt.Fprintf(w, `%s is ready. Put this in place of `+"`ca:`"+` in %s, or let --write do it:

%s
`, quoted(rolled.Dir), quoted(v.roll.Config), rolled.Lines())
	if err != nil {
		return err
	}
	return v.next(w, rolled)
}

// next prints how to go on.
func (v *rollVerb) next(w io.Writer, rolled *daemon.Rolled) error {
	brokers := ""
	if rolled.Brokers {
		brokers = "  give each broker another certificate with `muster broker certificate`, and have it read that\n"
	}
	_, err := fmt.Fprintf(w, `Then:

  muster provisioner run --config %s --check
  restart the provisioner
%s  sign new tokens with --ca %s; those that pin the old root are good as long as ca.previous names it

Keep %s somewhere off this machine.
`, quoted(v.roll.Config), brokers, quoted(filepath.Join(rolled.Dir, "root.pem")), quoted(rolled.RootKey))
	return err
}
