package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/disk"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/provisioner/backup"
	"muster/provisioner/broker"
	"muster/provisioner/ca"
	"muster/provisioner/orders"
	"muster/provisioner/store"
	"muster/provisioner/trust"
)

// A Restore puts a backup into an empty store: the directory of a provisioner, or the cluster of broker.url. No
// provisioner may run.
type Restore struct {
	Config string // path of a provisioner.yaml. Required
	File   string // path of the backup. Required

	// AcceptLoss restores although the watermark counted more revocations than backup and journal have.
	AcceptLoss bool

	// Step is called before each pass with its name and number of messages, -1 if unknown. Each is called after every
	// message. Required.
	Step func(what string, messages int)
	Each func()

	// Keyring finds the passphrase of encrypted keys, needed to connect to external brokers. Its File overrides
	// keys.passphrase_file.
	Keys keyfile.Ring

	Log *slog.Logger     // optional
	Now func() time.Time // optional

	Reached func(string) // called after each step, for tests that kill the process there; optional
}

// Restored is the result of a restore.
type Restored struct {
	*BackupInfo
	Revocations int              `json:"revocations"` // added from the journal
	Recovery    *orders.Recovery `json:"recovery"`    // of the store
}

// Run restores. No provisioner opens the store before it is complete, and the store is in recovery then. After a crash,
// run it again: it deletes the incomplete store. A complete store is never overwritten.
//
// The error wraps [broker.ErrStoreInUse] or [backup.ErrJournalInUse] if a provisioner runs, [store.ErrNotEmpty] if a
// store exists, [store.ErrInstallation] if another authority made the backup, or [backup.ErrDamaged].
func (r *Restore) Run(ctx context.Context) (*Restored, error) {
	r.setDefaults()
	cfg, err := daemon.ReadConfig(r.Config)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("configuration of the provisioner: %w: name the file with --config; its authority must be "+
			"that of the backup", err)
	}
	_, missing := os.Stat(r.File)
	if err = errors.Join(conffile.Prefix("backup", missing), err); err != nil {
		return nil, err
	}
	dir, inside := cfg.StoreDir(), cfg.Broker.URL == ""
	owner := inputfile.OwnerOf(cfg.DataDir)
	if err := inputfile.Safe(r.File, owner); errors.Is(err, inputfile.ErrUnsafe) { // it makes operators
		return nil, fmt.Errorf("%w; better restore a copy that only you could change", err)
	}
	// Check the whole file before changing anything.
	r.Step("checking", -1)
	info, err := CheckBackupFile(ctx, r.File, r.Each)
	if err != nil {
		return nil, err
	}
	if err := checkAuthority(cfg, info); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, err
	}
	if inside {
		if err := disk.NeedRoom(cfg.DataDir, info.takes+leastDisk); err != nil {
			return nil, err
		}
		release, err := lockEmpty(dir)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	r.Reached("locked")
	own, err := r.openJournal(cfg, info)
	if err != nil {
		return nil, err
	}
	defer func() { _ = own.Close() }() // its content is on disk
	r.Reached("journal read")
	f, err := r.filling(cfg, info, own)
	if err != nil {
		return nil, err
	}
	defer func() { f.close() }()
	if inside {
		err = f.intoDirectory(ctx)
	} else {
		err = f.intoCluster(ctx)
	}
	if err != nil {
		return nil, err
	}
	return f.out, nil
}

func (r *Restore) setDefaults() {
	if r.Now == nil {
		r.Now = time.Now
	}
	if r.Reached == nil {
		r.Reached = func(string) {}
	}
}

func (r *Restore) openJournal(cfg daemon.Config, info *BackupInfo) (*backup.Journal, error) {
	path := cfg.JournalPath()
	j, err := backup.OpenJournal(path)
	if err != nil {
		return nil, fmt.Errorf("revocations.journal: %w", err)
	}
	err = giveToOwnerOf(cfg.DataDir, path)
	if id := j.Installation(); err == nil && id != "" && id != info.Installation {
		err = fmt.Errorf("%s is of installation %s, but the backup is of %s: put the backup's journal there, "+
			"or move this one away",
			path, id, info.Installation)
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// lockEmpty locks the directory of a broker, which must be empty.
func lockEmpty(dir string) (release func(), err error) {
	lock, err := broker.Lock(dir)
	if errors.Is(err, broker.ErrStoreInUse) {
		return nil, fmt.Errorf("%w: stop the provisioner, and move the content of %s to another directory", err, dir)
	}
	if err != nil {
		return nil, err
	}
	if err := daemon.CheckEmpty(dir); err != nil {
		broker.Unlock(lock)
		return nil, err
	}
	return func() { broker.Unlock(lock) }, nil
}

// checkAuthority checks that the configured authority, or one of ca.previous, made the backup.
func checkAuthority(cfg daemon.Config, info *BackupInfo) error {
	present, previous, err := cfg.ReadAuthorities()
	if err != nil {
		return err
	}
	// The provisioner verifies their chain when it starts.
	known := ca.Describe(present, previous)
	if slices.ContainsFunc(known, func(c ca.CertificateInfo) bool { return c.Fingerprint == info.CAFingerprint }) {
		return nil
	}
	return fmt.Errorf("%w: the backup is of installation %s with the CA certificate %s, "+
		"but this configuration has %s: "+
		"name the configuration of that installation with --config; "+
		"if this authority has replaced that of the backup, list the latter under ca.previous again",
		store.ErrInstallation, info.Installation, info.CAFingerprint, known[0].Fingerprint)
}

// A filling is a store under restoration.
type filling struct {
	*Restore
	cfg     daemon.Config
	out     *Restored
	journal *backup.Journal
	entries []*trust.Revocation
	marks   []*store.WatermarkFile
	counted *store.Watermark // of the lost store, with the most revocations; nil if there is none
}

// filling dates the recovery no earlier than any time in backup and journal, since a new machine's clock may be wrong.
func (r *Restore) filling(cfg daemon.Config, info *BackupInfo, own *backup.Journal) (*filling, error) {
	entries := own.Entries()
	is := &orders.Recovery{
		Schema: orders.RecoverySchema,
		Began:  r.Now().UTC().Truncate(time.Second),
		Backup: info.ID,
		Cause:  trust.Cause{By: "muster restore", Why: "a backup of " + info.StartedAt.UTC().Format(time.RFC3339)},
	}
	if info.EndedAt.After(is.Began) {
		is.Began = info.EndedAt
	}
	for _, e := range entries {
		if e.At.After(is.Began) {
			is.Began = e.At
		}
	}
	f := &filling{
		Restore: r,
		cfg:     cfg,
		out:     &Restored{BackupInfo: info, Recovery: is},
		journal: own,
		entries: entries,
	}
	for _, path := range cfg.Watermarks() {
		file, mark, err := store.OpenWatermark(path)
		if err != nil {
			return nil, err
		}
		f.marks = append(f.marks, file)
		if mark != nil {
			is.Epoch = max(is.Epoch, mark.Epoch)
			if f.counted == nil || mark.Revocations() > f.counted.Revocations() {
				f.counted = mark
			}
		}
		if err := giveToOwnerOf(cfg.DataDir, path); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// checkRevocations refuses a restore without revocations that the lost store had: their nodes would be admitted.
func (f *filling) checkRevocations(found int) error {
	w := f.counted
	if w == nil || w.Installation != f.out.Installation || found >= w.Revocations() || f.AcceptLoss {
		return nil
	}
	return fmt.Errorf("%w: backup and journal have %d revocations, but on %s the store had %d: put the journal of "+
		"another provisioner at %s, or go on with the loss: --accept-loss", store.ErrDamaged, found,
		w.At.UTC().Format(time.RFC3339), w.Revocations(), f.cfg.JournalPath())
}

func (f *filling) close() {
	for _, m := range f.marks {
		_ = m.Close() // its content is on disk
	}
}

// copy writes backup and journal into the store, completes the store, and then writes journal and watermarks.
func (f *filling) copy(ctx context.Context, into *store.Import) error {
	file, err := inputfile.Open(f.File, inputfile.Configured)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	f.Step("restoring", int(f.out.Messages()))
	var unwritten error // the file is not at fault
	again, err := readBackup(file, func(m *backup.Message) error {
		f.Each()
		unwritten = into.Message(ctx, m.Stream, m.Sequence, m.Subject, m.Data)
		return unwritten
	})
	if unwritten != nil {
		return fmt.Errorf("restore: %w", unwritten)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.File, err)
	}
	if again.ID != f.out.ID {
		return fmt.Errorf("%s: the file has changed since the check: run the restore again", f.File)
	}
	for _, e := range f.entries {
		added, err := into.AppendRevocation(ctx, e)
		if err != nil {
			return err
		}
		if added {
			f.out.Revocations++
		}
	}
	if err := f.checkRevocations(into.Revocations()); err != nil {
		return err
	}
	f.Reached("written")
	if err := into.Finish(ctx, f.out.Recovery); err != nil {
		return err
	}
	f.Reached("finished")
	if err := errors.Join(f.journal.Begin(f.out.Installation), f.journal.Append(f.entries...)); err != nil {
		return fmt.Errorf("revocations.journal: %w", err)
	}
	f.Reached("journal written")
	mark, err := into.Done(ctx)
	if err != nil {
		return err
	}
	f.Reached("complete")
	for _, m := range f.marks {
		if err := m.Write(mark); err != nil {
			return err
		}
	}
	return nil
}

// AcceptLoss puts a store that has lost data into recovery, see [orders.Recovery]. The provisioner of d must not run.
// Repeating it is harmless.
func AcceptLoss(ctx context.Context, d *daemon.Daemon, why trust.Cause) (r *orders.Recovery, err error) {
	err = d.WithStore(ctx, "recovery", func(cfg store.Config) error {
		r, err = store.AcceptLoss(ctx, cfg, why)
		return err
	})
	return r, err
}

// intoCluster fills the store on the brokers of broker.url. Its first message marks it as incomplete, and no
// provisioner opens it; its last message completes it.
func (f *filling) intoCluster(ctx context.Context) error {
	d, err := daemon.Load( //nolint:contextcheck // bounded by the time-out of the policy's tests
		f.Config, daemon.Options{Log: f.Log, Now: f.Now, Keys: f.Keys})
	if err != nil {
		return err
	}
	f.Step("connecting to "+d.BrokerURL(), -1)
	return d.WithStore(ctx, "restore", func(cfg store.Config) error {
		f.Reached("connected")
		// This deletes the incomplete store of an earlier attempt.
		begin := func(ctx context.Context) (*store.Import, error) {
			into := store.Config{Conn: cfg.Conn, Replicas: cfg.Replicas, Log: cfg.Log, Now: f.Now}
			return store.NewImport(ctx, into, f.out.ID)
		}
		into, err := daemon.AwaitStore(ctx, begin, store.ErrNotEmpty)
		if err != nil {
			return err
		}
		f.Reached("streams made")
		if err := f.copy(ctx, into); err != nil {
			return err
		}
		f.Reached("done")
		return nil
	})
}
