package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"muster/internal/keyfile"
	"muster/provisioner"
	"muster/provisioner/backup"
	"muster/provisioner/broker"
	"muster/provisioner/store"
)

// A Restore puts a backup into the empty store of provisioners that do not run:
// the directory of one, or the cluster that broker.url names.
type Restore struct {
	Config string // path of provisioner.yaml, of any of them. Required
	File   string // the backup. Required

	// Journals are journals of other provisioners on the same store, besides the
	// one that Config names. Optional.
	Journals []string

	// AcceptLostSince says that the operator knows that what was spent of limited
	// tokens since then may be lost. All limited tokens are frozen then. It is needed where the
	// journals do not have all that came after the backup, and then at or before its StartedAt.
	// It is wanted where they look complete and one of them is a copy that was made before
	// the end, and may be the time of that.
	AcceptLostSince time.Time

	// Step is told what is being done, and of how many messages, once before
	// each pass over them; Each is called after every message. Optional.
	Step func(what string, messages int)
	Each func()

	// Keys finds the passphrase of encrypted keys, which it takes to connect to
	// brokers of others. Its File, if set, comes before keys.passphrase_file.
	Keys keyfile.Ring

	Log *slog.Logger     // optional; discards by default
	Now func() time.Time // optional; defaults to [time.Now]

	Reached func(string) // told of each step that is done, for tests that kill it there; nil tells nobody
}

// Restored says what a restore has done.
type Restored struct {
	*BackupInfo

	// What came from the journals.
	Revocations int `json:"revocations"`
	Signers     int `json:"signers"`
	Claims      int `json:"claims"` // entries
	Takeovers   int `json:"takeovers"`
	Operators   int `json:"operators"`
	Allowances  int `json:"allowances"`

	// LeftOut are the names of nodes with a retirement that never got into the store, in a
	// journal alone, and that others have decided about since. Nil if there are none.
	LeftOut []string `json:"retirements_left_out,omitempty"`

	// Journals are what was read, in the order given, the configuration's own first.
	Journals []JournalEnd `json:"journals"`

	// Lost says why the journals may not have all, empty if they do. Limited
	// tokens are frozen then.
	Lost string `json:"lost,omitempty"`
}

// A JournalEnd says up to when a journal goes: whether it goes on, in a newer copy, nobody can
// see of it.
type JournalEnd struct {
	File string    `json:"file"`
	At   time.Time `json:"at,omitzero"` // the newest that a line of it names; zero: there is none
}

// errSaidSo is why something may be lost where the journals look complete.
var errSaidSo = errors.New("--accept-lost-since says that they end too soon")

// jetStreamDir is the directory in its StoreDir in which a broker keeps streams.
const jetStreamDir = "jetstream"

// Run restores. Nobody opens the store before all of it is there. What a restore
// that was killed has left is thrown away by the next one, so that it can be
// repeated until it has succeeded, and is refused from then on. One that fails
// leaves nothing that was not there before.
//
// The error is [broker.ErrStoreInUse], [journal.ErrInUse] or [ErrServed] if a
// provisioner runs, wraps [store.ErrNotEmpty] if there is a store already, [store.ErrInstallation] if
// the backup is of another certificate authority, and [backup.ErrDamaged] if it
// is not whole.
func (r *Restore) Run(ctx context.Context) (out *Restored, err error) {
	if r.Now == nil {
		r.Now = time.Now
	}
	if r.Step == nil {
		r.Step = func(string, int) {}
	}
	if r.Reached == nil {
		r.Reached = func(string) {}
	}
	if r.Each == nil {
		r.Each = func() {}
	}
	if err := r.missing(); err != nil {
		return nil, err
	}
	cfg, err := readConfig(r.Config)
	if err != nil {
		return nil, err
	}
	dir, inside := filepath.Join(cfg.DataDir, "broker"), cfg.Broker.URL == ""
	if inside {
		if err := unused(dir); err != nil {
			return nil, err
		}
	}
	// The whole file first: nothing is begun with one that is damaged.
	r.Step("checking", -1)
	info, err := CheckBackupFile(ctx, r.File, r.Each)
	if err != nil {
		return nil, err
	}
	if err := checkAuthority(cfg, info); err != nil {
		return nil, err
	}
	var made absent
	if inside {
		if err := hasRoom(dir, info.takes+leastDisk); err != nil {
			return nil, err
		}
		made = absentBefore(dir)
		release, err := lockEmpty(dir)
		if err != nil {
			return nil, err // and whoever has the lock has made it
		}
		defer release()
		if err := made.give(); err != nil {
			return nil, errors.Join(err, made.remove())
		}
	}
	r.Reached("locked")
	out = &Restored{BackupInfo: info}
	since, err := r.readJournals(cfg, info)
	defer func() {
		if err != nil { // while both locks are held
			err = errors.Join(err, since.made.remove(), made.remove())
		}
		since.close()
	}()
	if err != nil {
		return nil, err
	}
	r.Reached("journal read")
	out.Journals = since.ends
	if err := r.accepts(since); err != nil {
		return nil, err
	}
	if since.lost != nil {
		out.Lost = since.lost.Error()
	}
	if cfg.Broker.URL != "" {
		err = r.intoCluster(ctx, since, out)
	} else {
		err = r.intoDirectory(ctx, cfg, since, out)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// missing reports all files that are not there. A journal that is opened is made:
// one that was named and is missing would count as one in which nothing happened.
func (r *Restore) missing() error {
	var errs []error
	look := func(format, path string) {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, fmt.Errorf(format, err))
		}
	}
	look("backup: %w", r.File)
	if info, err := os.Stat(r.File); err == nil && !info.Mode().IsRegular() {
		errs = append(errs, fmt.Errorf("backup: %s is no regular file, and is read twice: put what is in it into one", r.File))
	}
	look("configuration of the provisioner: %w: name it with --config; it has the authority that the backup is of", r.Config)
	for _, path := range r.Journals {
		look("--journal: %w", path)
	}
	return errors.Join(errs...)
}

// unused is [lockEmpty] for a moment, and makes nothing: where there is no lock to
// take, nobody has it.
func unused(dir string) error {
	if _, err := os.Lstat(broker.LockFile(dir)); errors.Is(err, fs.ErrNotExist) {
		return checkEmpty(dir)
	}
	release, err := lockEmpty(dir)
	if err == nil {
		release()
	}
	return err
}

// lockEmpty keeps provisioners from the directory of a broker, which must not
// have kept anything.
func lockEmpty(dir string) (release func(), err error) {
	release, err = broker.Lock(dir)
	if errors.Is(err, broker.ErrStoreInUse) {
		return nil, fmt.Errorf("%w: stop the provisioner, and keep what it has in %s by another name", err, dir)
	}
	if err != nil {
		return nil, err
	}
	if err := checkEmpty(dir); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// checkEmpty returns [store.ErrNotEmpty] if a broker has ever kept a stream in
// its directory.
func checkEmpty(dir string) error {
	err := filepath.WalkDir(filepath.Join(dir, jetStreamDir), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			err = fmt.Errorf("%w: %s is there; move %s away and keep it until the fleet is well again", store.ErrNotEmpty, path, dir)
		}
		return err
	})
	return ignoreAbsent(err)
}

// checkAuthority sees that the store in the backup was bound to our authority,
// or to one that it has taken over from.
func checkAuthority(cfg Config, info *BackupInfo) error {
	root, err := readCertificate(cfg.CA.Root)
	if err != nil {
		return err
	}
	known := []*x509.Certificate{root}
	for _, p := range cfg.CA.Previous {
		c, err := readCertificate(p.Root)
		if err != nil {
			return err
		}
		known = append(known, c)
	}
	// Whether one vouches for the next is for the provisioner to see when it
	// starts on the store.
	if slices.ContainsFunc(known, func(c *x509.Certificate) bool { return fingerprintOf(c) == info.CAFingerprint }) {
		return nil
	}
	return fmt.Errorf("%w: the backup is of installation %s with the CA certificate %s, ours is %s: name the configuration that belongs to it with --config; "+
		"if ours was rolled over from it since, list that one under ca.previous again, as after the roll-over",
		store.ErrInstallation, info.Installation, info.CAFingerprint, fingerprintOf(root))
}

// fingerprintOf is [ca.Authority.Fingerprint] of an authority whose key is not
// at hand.
func fingerprintOf(root *x509.Certificate) string {
	sum := sha256.Sum256(root.Raw)
	return hex.EncodeToString(sum[:])
}

// copy writes the backup's messages and what the journals have to a store, and
// says that it is one.
func (r *Restore) copy(ctx context.Context, into *store.Import, since *since, out *Restored) error {
	f, err := os.Open(r.File)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	for _, t := range since.takeovers {
		into.Watch(t.Identity)
	}
	for _, e := range since.revocations {
		if e.Kind == provisioner.RetiredNode {
			into.WatchOwner(e.Node)
		}
	}
	r.Step("restoring", int(out.Messages()))
	var unwritten error // what is no fault of the file
	again, err := readBackup(f, func(m *backup.Message) error {
		r.Each()
		if noted, _ := store.ProvisionersOf(m.Subject, m.Data); noted != nil && since.lost != nil {
			// Whose journals are not all there may not be there themselves. Nobody
			// looks for them any more: older backups are never complete again.
			return nil
		}
		unwritten = into.Message(ctx, m.Stream, m.Sequence, m.Subject, m.Data)
		return unwritten
	})
	if unwritten != nil {
		return fmt.Errorf("restore: %w", unwritten)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.File, err)
	}
	if again.ID != out.ID {
		return fmt.Errorf("%s: another file since it was checked", r.File)
	}
	if err := since.apply(ctx, into, since.time(r.Now()), out); err != nil {
		return err
	}
	r.Reached("written")
	if err := into.Finish(ctx, since.newest); err != nil {
		return err
	}
	r.Reached("finished")
	// Before the store is one: if this is the last step, the journals say that
	// something was lost, and the next try has to be told so again.
	if err := since.end(r.Now()); err != nil {
		return err
	}
	r.Reached("journal told")
	return into.Done(ctx, since.lost != nil || since.renumber)
}

// giveAllTo makes all in dir the owner's of another directory, if we are root: a
// provisioner that runs as another user has to read it.
func giveAllTo(dir, like string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(stat.Uid), int(stat.Gid)) //nolint:gosec // nobody else may write to data_dir
	})
}
