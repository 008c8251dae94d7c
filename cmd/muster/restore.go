package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/daemon"
)

// restoreVerb is "muster restore".
type restoreVerb struct {
	setup
	keys    keyFlags
	restore daemon.Restore
}

const restoreHelp = `Puts a backup into the empty store of a provisioner that does not run. Move away
what is left of the old store first, and leave the journal where it is. The new
store appears whole or not at all: after a failure, do it again. With broker.url,
the store is in the empty cluster there, and no provisioner of it may run.

Revocations, changes of signers, operators and the allow-list, and spent uses of
limited tokens that are newer than the backup come from the journals of all
provisioners. If these are not known to have all of them, say with
--accept-lost-since that you know: limited tokens are frozen then, until 'muster
token thaw' or a new one, and what was revoked, retired or removed
after the backup may be good again. Say so, too, if a journal is a copy, with the
time of that: nobody can see that it goes on elsewhere. The time of the newest
entry of each is printed.

  muster restore /var/backups/muster-monday
  muster restore monday --journal prov2/revocations.journal --config prov/provisioner.yaml
  muster restore monday --accept-lost-since 2026-03-01T02:00:00Z`

func addRestore(app *kingpin.Application, all verbs) {
	v := &restoreVerb{}
	c := app.Command("restore", "Put a backup into the provisioner's empty store.").HelpLong(restoreHelp)
	c.Arg("file", "The backup.").Required().StringVar(&v.restore.File)
	c.Flag("journal", "Journal of another provisioner on the same store; can be repeated.").PlaceHolder("FILE").StringsVar(&v.restore.Journals)
	c.Flag("accept-lost-since", "Go on without what came after this time, the backup's or that of a copy of a journal, and freeze limited tokens.").PlaceHolder("TIME").SetValue((*instantValue)(&v.restore.AcceptLostSince))
	v.addSetup(c, "Configuration file of the provisioner.")
	v.keys.add(c)
	all.Check(c, func() error {
		if v.restore.File == "" || v.restore.File == "-" { // which kingpin makes empty
			return errors.New("give the name of a file: a backup is read twice, so it is no stream (./- is a file of that name)")
		}
		return nil
	})
	all[c.FullCommand()] = cli.CleansUp(v.run)
}

func (v *restoreVerb) run(ctx context.Context) error {
	v.restore.Config, v.restore.Keys = v.config, v.keys.ring(ctx)
	bar := cli.NewProgressOf(os.Stderr, "", "messages", -1)
	v.restore.Step = func(what string, messages int) {
		bar.Done()
		bar = cli.NewProgressOf(os.Stderr, what, "messages", messages)
	}
	v.restore.Each = func() { bar.Add(1) }
	out, err := v.restore.Run(ctx)
	bar.Done()
	if err != nil {
		return orNotYours(err)
	}
	return unprinted("the store is restored", v.print(out, func() error {
		_, err := fmt.Fprintf(os.Stdout, "%d messages of %s restored; from the journal: %d revocations, %d of signers, %d of operators, %d of the allow-list, %d of claims, %d names given to other keys\n",
			out.Messages(), quoted(v.restore.File), out.Revocations, out.Signers, out.Operators, out.Allowances, out.Claims, out.Takeovers)
		for _, j := range out.Journals {
			if j.At.IsZero() {
				v.say("%s has no entry that says when it was made", quoted(j.File))
				continue
			}
			v.say("%s goes up to %s: what came later is not restored", quoted(j.File), instant(j.At))
		}
		if len(out.LeftOut) > 0 {
			v.say("retirements left out, since others have decided about these names after them: %s", strings.Join(out.LeftOut, ", "))
		}
		if out.Lost != "" {
			v.say("limited tokens signed until now are frozen: sign new ones, or see `muster token thaw`")
			v.say("what was revoked, retired or removed after the backup may be good again: do it once more when the provisioner runs")
		}
		if gone := out.AllowancesGone; len(gone) > 0 {
			v.say("allowed for a number of names, of which nobody knows how many are left, so allowed no more: %s; give it again with `muster allow add`", strings.Join(gone, ", "))
		}
		if len(v.restore.Journals) > 0 {
			v.say("bring the other provisioners their journals back as they are now")
		}
		v.say("start the provisioner")
		return err
	}))
}

// instantValue is a point in time on a command line.
type instantValue time.Time

// Set implements [kingpin.Value].
func (v *instantValue) Set(text string) error {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("%q is no time like 2026-03-01T12:00:00Z", text)
	}
	*v = instantValue(t)
	return nil
}

// String implements [kingpin.Value].
func (v *instantValue) String() string { return instant(time.Time(*v)) }
