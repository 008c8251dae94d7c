package main

import (
	"context"
	"fmt"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/daemon"
)

// restoreVerb is "muster restore".
type restoreVerb struct {
	operator
	restore daemon.Restore
}

const restoreHelp = `Puts a backup into the empty store of a provisioner that does not run. Move away
what is left of the old store first, and leave the journal where it is. The new
store appears whole or not at all: after a failure, do it again.`

func addRestore(app *kingpin.Application, all verbs) {
	v := &restoreVerb{}
	c := app.Command("restore", "Put a backup into the provisioner's empty store.").HelpLong(restoreHelp)
	c.Arg("file", "The backup.").Required().StringVar(&v.restore.File)
	v.add(c)
	all[c.FullCommand()] = v.run
}

func (v *restoreVerb) run(ctx context.Context) error {
	v.restore.Config = v.config
	bar := cli.NewProgressOf(os.Stderr, "", "messages", -1)
	v.restore.Step = func(what string, messages int) {
		bar.Done()
		bar = cli.NewProgressOf(os.Stderr, what, "messages", messages)
	}
	v.restore.Each = func() { bar.Add(1) }
	out, err := v.restore.Run(ctx)
	bar.Done()
	if err != nil {
		return err
	}
	return v.print(out, func() error {
		_, err := fmt.Fprintf(os.Stdout, "%d messages of %s restored; start the provisioner\n", out.Messages(), quoted(v.restore.File))
		return err
	})
}
