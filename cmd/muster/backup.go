package main

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

	"muster/internal/cli"
	"muster/internal/daemon"
)

// backupVerb is "muster backup".
type backupVerb struct {
	operator
	file  string
	check bool
}

const backupHelp = `Writes what the provisioner's store must not lose into one file: records with
their history, claims, revocations, signers and the rest, but no events. The
provisioner goes on meanwhile. The file appears when it is whole, is readable by
its owner only, and is never put in place of another.

What happens after a backup is in the journal (revocations.journal in
provisioner.yaml): keep that on another disk. 'muster restore' needs both.

  muster backup /var/backups/muster-monday --why 'every night'
  muster backup /var/backups/muster-monday --check

Exits with 0 if the backup is whole, 1 if it is not or was not written, 2 if the
command line makes no sense.`

func addBackup(app *kingpin.Application, all verbs) {
	v := &backupVerb{}
	c := app.Command("backup", "Back the provisioner's store up while it runs.").HelpLong(backupHelp)
	c.Arg("file", "File to write, or with --check to read.").Required().StringVar(&v.file)
	c.Flag("check", "Read a backup and see that it is whole; no provisioner is asked.").BoolVar(&v.check)
	v.addFlags(c)
	v.addWhy(c)
	all.Check(c, func() error {
		var file error
		if v.file == "" || v.file == "-" { // which kingpin makes empty
			file = errors.New("give the name of a file: a backup appears when it is whole, and is no stream (./- is a file of that name)")
		}
		if v.check {
			return file // nobody is asked
		}
		return errors.Join(file, v.checkURL(), v.saysWhy())
	})
	all[c.FullCommand()] = v.run
}

func (v *backupVerb) run(ctx context.Context) error {
	info, err := v.make(ctx)
	if err != nil {
		return err
	}
	return unprinted(quoted(v.file)+" is whole", v.print(info, func() error { return writeBackup(v.file, info) }))
}

// make makes the backup, or reads the one that is there.
func (v *backupVerb) make(ctx context.Context) (*daemon.BackupInfo, error) {
	if v.check {
		f, err := os.Open(v.file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read
		bar := cli.NewProgressOf(os.Stderr, "checking", "messages", -1)
		defer bar.Done()
		info, err := daemon.CheckBackup(f, func() { bar.Add(1) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.file, err)
		}
		return info, nil
	}
	var info *daemon.BackupInfo
	err := cli.WriteNewBy(v.file, 0o600, false, func(w io.Writer) error {
		client, err := v.client(ctx)
		if err != nil {
			return err
		}
		body, messages, err := client.Backup(ctx, v.why)
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }() // read to its end, or of no use
		bar := cli.NewProgressOf(os.Stderr, "backup", "messages", messages)
		defer bar.Done()
		// Read as a restore reads it, before it gets its name.
		if info, err = daemon.CheckBackup(io.TeeReader(body, w), func() { bar.Add(1) }); err != nil {
			what := "the provisioner's log says why"
			if errors.Is(err, daemon.ErrUnknown) {
				what = "make the backup with the version of muster that wrote it"
			}
			return fmt.Errorf("%s: not written: %w; %s", v.file, err, what)
		}
		return nil
	})
	if errors.Is(err, cli.ErrExists) {
		return nil, fmt.Errorf("%s: %w; a backup is never put in place of another file, give a new name", v.file, fs.ErrExist)
	}
	return info, err
}

// writeBackup tells a person what a backup has.
func writeBackup(file string, info *daemon.BackupInfo) error {
	var parts []string
	for _, s := range info.Streams {
		what := strings.ToLower(strings.TrimPrefix(s.Name, "MUSTER_"))
		if what == "nodes" { // of each there are two and more
			what = "revisions of nodes"
		}
		parts = append(parts, fmt.Sprintf("%d %s", s.Messages, what))
	}
	_, err := fmt.Fprintf(os.Stdout, "%s is whole: %s, of %s to %s\n", quoted(file), strings.Join(parts, ", "),
		info.StartedAt.Format(time.RFC3339), info.EndedAt.Format(time.RFC3339))
	return err
}
