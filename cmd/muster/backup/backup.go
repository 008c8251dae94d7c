// Package backup implements "muster backup" and "muster restore".
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/setup"
)

const help = `Writes the store into one file while the provisioner runs: records with their
history, claims, revocations, signers and so on, but no events. The file appears
when it is complete, is readable by its owner only, and never replaces a file.

Revocations that are newer than the backup are in the journal
(revocations.journal in provisioner.yaml), which belongs on another disk.
'muster restore' needs both.

  muster backup /var/backups/muster-monday --why 'every night'
  muster backup /var/backups/muster-monday --verify

Exits with 0 if the backup is complete, 1 if it is not or was not written, 2 if the
command line is wrong.`

// Add adds both verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	var file string
	var check bool
	o := &verb.Operator{}
	c := app.Command("backup", "Write a backup of the store while the provisioner runs.").HelpLong(help)
	c.Arg("file", "File to write, or with --validate to read.").Required().StringVar(&file)
	cli.Flag(c, "verify").BoolVar(&check)
	o.AddFlags(c)
	o.AddWhy(c)
	all.Check(c, func() error {
		if check {
			return nil
		}
		return o.CheckChange()
	})
	all[c.FullCommand()] = func(ctx context.Context) error {
		run := write
		if check {
			run = read
		}
		info, err := run(ctx, o, file)
		if err != nil {
			return err
		}
		return verb.Unprinted(verb.Quoted(file)+" is complete",
			verb.Show(&o.Output, info, func(info *setup.BackupInfo) io.WriterTo {
				return cli.Text(verb.Quoted(file) + " is complete: " + describe(info) + "\n")
			}))
	}
	addRestore(app, all)
}

// read reads and checks an existing backup.
func read(ctx context.Context, _ *verb.Operator, file string) (*setup.BackupInfo, error) {
	bar := cli.NewProgress(os.Stderr, "checking", "messages", -1)
	defer bar.Done()
	return setup.CheckBackupFile(ctx, file, func() { bar.Add(1) })
}

// write makes a backup.
func write(ctx context.Context, o *verb.Operator, file string) (info *setup.BackupInfo, err error) {
	err = cli.WriteNewBy(file, 0o600, false, func(w io.Writer) error {
		client, err := o.Client()
		if err != nil {
			return err
		}
		body, messages, err := client.Backup(ctx, o.Why)
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }() // the body was read to its end, or an error is returned already
		bar := cli.NewProgress(os.Stderr, "backup", "messages", messages)
		defer bar.Done()
		// The backup is checked before it gets its name.
		if info, err = setup.CheckBackup(ctx, io.TeeReader(body, w), func() { bar.Add(1) }); err != nil {
			what := "the provisioner's log says why"
			if errors.Is(err, setup.ErrUnknown) {
				what = "use the version of muster that wrote it"
			}
			return fmt.Errorf("%s: not written: %w; %s", file, err, what)
		}
		return nil
	})
	if errors.Is(err, cli.ErrExists) {
		err = fmt.Errorf("%s: %w; a backup never replaces a file, give a new name", file, fs.ErrExist)
	}
	return info, err
}

// describe returns the contents of a backup as text.
func describe(info *setup.BackupInfo) string {
	var parts []string
	for _, s := range info.Streams {
		what := strings.ToLower(strings.TrimPrefix(s.Name, "MUSTER_"))
		if what == "nodes" { // a node has several revisions
			what = "revisions of nodes"
		}
		parts = append(parts, fmt.Sprintf("%d %s", s.Messages, what))
	}
	return fmt.Sprintf("%s, of %s to %s", strings.Join(parts, ", "), info.StartedAt.Format(time.RFC3339),
		info.EndedAt.Format(time.RFC3339))
}
