package backup

import (
	"context"
	"fmt"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/setup"
)

const restoreHelp = `Restores a backup into the empty store of a provisioner that does not run. Move the
rest of the old store away first, and leave the journal where it is. The new store
appears completely or not at all: after a failure, run the command again. With
broker.url, the store is in that cluster, which must be empty and have no
provisioner.

Revocations that are newer than the backup come from the journal that the
configuration names. If it is lost, copy the journal of another provisioner there
first. If revocations are missing even so, the restore says how many, and goes on only
with --accept-loss. Everything else that is newer is lost, so the store is in recovery
afterwards: see 'muster recovery --help'.

  muster restore /var/backups/muster-monday
  muster restore monday --config prov/provisioner.yaml`

// restore holds the flags of "muster restore".
type restore struct {
	setup.Restore
	setup verb.Setup
	keys  verb.KeyFlags
}

func addRestore(app *kingpin.Application, all cli.Verbs) {
	r := &restore{}
	c := app.Command("restore", "Restore a backup into an empty store.").HelpLong(restoreHelp)
	c.Arg("file", "The backup.").Required().StringVar(&r.File)
	cli.Flag(c, "accept-loss").BoolVar(&r.AcceptLoss)
	r.setup.AddFlags(c)
	r.keys.AddFlags(c)
	all[c.FullCommand()] = cli.CleansUp(r.run)
}

func (r *restore) run(ctx context.Context) error {
	r.Config, r.Keys = r.setup.Config, r.keys.Ring(ctx)
	bar := cli.NewProgress(os.Stderr, "", "messages", -1)
	r.Step = func(what string, messages int) {
		bar.Done()
		bar = cli.NewProgress(os.Stderr, what, "messages", messages)
	}
	r.Each = func() { bar.Add(1) }
	out, err := r.Run(ctx)
	bar.Done()
	if err != nil {
		return verb.OrNotYours(err)
	}
	return verb.Unprinted("the store is restored", verb.Show(&r.setup.Output, out, r.show))
}

func (r *restore) show(out *setup.Restored) fmt.Stringer {
	say := r.setup.After
	say("start the provisioner; nodes come back by their certificates")
	say("limited tokens signed until now are frozen: sign new ones, or see `muster token unfreeze`")
	say("once all nodes are back, run `muster recovery end`")
	return cli.Text(fmt.Sprintf(
		"%d messages of %s restored, and %d revocations of the journal; the store is in recovery since %s\n",
		out.Messages(), verb.Quoted(r.File), out.Revocations, verb.Instant(out.Recovery.Began)))
}
