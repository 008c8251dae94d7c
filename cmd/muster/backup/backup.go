// Package backup implements "muster backup" and "muster restore".
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/setup"
)

const help = `Writes the store into one file while the provisioner runs: records with their
history, claims, revocations, signers and so on, but no events. The file appears
when it is complete, is readable by its owner only, and never replaces a file. In a
directory, the file is named by the time, such as muster-20261129T230000Z.backup;
--keep then removes the oldest files of that form.

Revocations that are newer than the backup are in the journal
(revocations.journal in provisioner.yaml), which belongs on another disk.
'muster restore' needs both.

  muster backup /var/backups/muster --keep 14 --why 'every night'
  muster backup /var/backups/before-upgrade
  muster backup /var/backups/before-upgrade --verify

Exits with 0 if the backup is complete, 1 if it is not or was not written, 2 if the
command line is wrong.`

// Add adds both verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	var file string
	var check bool
	var keep int
	o := &verb.Operator{}
	c := app.Command("backup", "Write a backup of the store while the provisioner runs.").HelpLong(help)
	c.Arg("file", "File or directory to write, or with --verify the file to read.").Required().StringVar(&file)
	cli.Flag(c, "verify").BoolVar(&check)
	cli.IntIn(cli.Flag(c, "keep"), &keep, 1, math.MaxInt)
	o.AddFlags(c)
	o.AddWhy(c)
	all.Check(c, func() error {
		switch {
		case keep > 0 && check:
			return errors.New("--keep and --verify: give one of them")
		case check:
			return nil
		}
		return o.CheckChange()
	})
	all[c.FullCommand()] = func(ctx context.Context) error {
		run, dir := write, ""
		switch {
		case check:
			run = read
		case keep > 0 && !isDir(file):
			return fmt.Errorf("--keep: %s is no directory: make one, in which each backup gets a name of its own",
				verb.Quoted(file))
		case isDir(file):
			dir, file = file, filepath.Join(file, time.Now().UTC().Format(nameForm))
		}
		info, err := run(ctx, o, file)
		if err == nil && keep > 0 {
			err = removeOldest(dir, file, keep)
		}
		if err != nil {
			return err
		}
		return verb.Unprinted(verb.Quoted(file)+" is complete",
			verb.Show(&o.Output, info, func(info *setup.BackupInfo) fmt.Stringer {
				return cli.Text(verb.Quoted(file) + " is complete: " + describe(info) + "\n")
			}))
	}
	addRestore(app, all)
}

// nameForm is the name of a backup in a directory, as [time.Layout]. Names sort by time.
const nameForm = "muster-20060102T150405Z.backup"

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// removeOldest leaves the newest backup and keep-1 more in dir, by their names.
func removeOldest(dir, newest string, keep int) error {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	old := slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		_, err := time.Parse(nameForm, e.Name())
		return err != nil || e.Name() == filepath.Base(newest)
	})
	for _, e := range old[:max(0, len(old)-keep+1)] {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("%s is complete, but an old backup stays: %w", newest, err)
		}
	}
	return nil
}

func read(ctx context.Context, _ *verb.Operator, file string) (*setup.BackupInfo, error) {
	bar := cli.NewProgress(os.Stderr, "checking", "messages", -1)
	defer bar.Done()
	return setup.CheckBackupFile(ctx, file, func() { bar.Add(1) })
}

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
