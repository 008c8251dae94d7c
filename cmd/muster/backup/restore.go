package backup

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/daemon"
)

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

// restore is what the flags of "muster restore" say.
type restore struct {
	daemon.Restore
	setup verb.Setup
	keys  verb.KeyFlags
}

func addRestore(app *kingpin.Application, all cli.Verbs) {
	r := &restore{}
	c := app.Command("restore", "Put a backup into the provisioner's empty store.").HelpLong(restoreHelp)
	c.Arg("file", "The backup.").Required().StringVar(&r.File)
	c.Flag("journal", "Journal of another provisioner on the same store; can be repeated.").PlaceHolder("FILE").StringsVar(&r.Journals)
	c.Flag("accept-lost-since", "Go on without what came after this time, the backup's or that of a copy of a journal, and freeze limited tokens.").
		PlaceHolder("TIME").SetValue((*instantValue)(&r.AcceptLostSince))
	r.setup.AddFlags(c)
	r.keys.AddFlags(c)
	all.Check(c, func() error { return checkFile(r.File, "a backup is read twice, so it is no stream") })
	all[c.FullCommand()] = cli.CleansUp(r.run)
}

func (r *restore) run(ctx context.Context) error {
	r.Config, r.Keys = r.setup.Config, r.keys.Ring(ctx)
	bar := cli.NewProgressOf(os.Stderr, "", "messages", -1)
	r.Step = func(what string, messages int) {
		bar.Done()
		bar = cli.NewProgressOf(os.Stderr, what, "messages", messages)
	}
	r.Each = func() { bar.Add(1) }
	out, err := r.Run(ctx)
	bar.Done()
	if err != nil {
		return verb.OrNotYours(err)
	}
	return verb.Unprinted("the store is restored", verb.Show(&r.setup.Output, out, r.show))
}

// show tells a person what was restored, and what to do next.
func (r *restore) show(out *daemon.Restored) io.WriterTo {
	say := r.setup.After
	for _, j := range out.Journals {
		if j.At.IsZero() {
			say("%s has no entry that says when it was made", verb.Quoted(j.File))
			continue
		}
		say("%s goes up to %s: what came later is not restored", verb.Quoted(j.File), verb.Instant(j.At))
	}
	if len(out.LeftOut) > 0 {
		say("retirements left out, since others have decided about these names after them: %s", strings.Join(out.LeftOut, ", "))
	}
	if out.Lost != "" {
		say("limited tokens signed until now are frozen: sign new ones, or see `muster token thaw`")
		say("what was revoked, retired or removed after the backup may be good again: do it once more when the provisioner runs")
	}
	if len(r.Journals) > 0 {
		say("bring the other provisioners their journals back as they are now")
	}
	say("start the provisioner")
	return cli.Text(fmt.Sprintf("%d messages of %s restored; from the journal: %d revocations, %d of signers, %d of operators, %d of the allow-list, %d of claims, %d names given to other keys\n",
		out.Messages(), verb.Quoted(r.File), out.Revocations, out.Signers, out.Operators, out.Allowances, out.Claims, out.Takeovers))
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
func (v *instantValue) String() string { return verb.Instant(time.Time(*v)) }
