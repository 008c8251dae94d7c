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

	"muster/internal/wire"
	"muster/provisioner/backup"
	"muster/provisioner/broker"
	"muster/provisioner/store"
)

// A Restore puts a backup into the empty store of a provisioner that does not
// run.
type Restore struct {
	Config string // path of provisioner.yaml. Required
	File   string // the backup. Required

	// Journals are journals of other provisioners on the same store, besides the
	// one that Config names. Optional.
	Journals []string

	// AcceptLostSince says that the operator knows that what was spent of limited
	// tokens since then may be lost: at or before the backup's StartedAt. It is
	// needed where the journals do not have all that came after the backup, and
	// then all limited tokens are frozen.
	AcceptLostSince time.Time

	// Step is told what is being done, and of how many messages, once before
	// each pass over them; Each is called after every message. Optional.
	Step func(what string, messages int)
	Each func()

	Log *slog.Logger     // optional; discards by default
	Now func() time.Time // optional; defaults to [time.Now]

	reached func(string) // told of each step that is done, for tests; nil tells nobody
}

// Restored says what a restore has done.
type Restored struct {
	*BackupInfo

	// What came from the journals.
	Revocations int `json:"revocations"`
	Signers     int `json:"signers"`
	Claims      int `json:"claims"` // entries
	Takeovers   int `json:"takeovers"`

	// Lost says why the journals may not have all, empty if they do. Limited
	// tokens are frozen then.
	Lost string `json:"lost,omitempty"`
}

// restoringDir is where a store is filled before it gets its place.
const restoringDir = "broker.restoring"

// jetStreamDir is the directory in its StoreDir in which a broker keeps streams.
const jetStreamDir = "jetstream"

// Run restores. The store appears with all of it or not at all: it is filled
// under another name, by a broker that nobody can reach, brought to the disk,
// and then gets its place by one rename. What a restore that was killed has left
// is thrown away by the next one, so that it can be repeated until it has
// succeeded, and is refused from then on.
//
// The error is [broker.ErrStoreInUse] if a provisioner runs, wraps
// [store.ErrNotEmpty] if there is a store already, [store.ErrInstallation] if
// the backup is of another certificate authority, and [backup.ErrDamaged] if it
// is not whole.
func (r *Restore) Run(ctx context.Context) (*Restored, error) {
	if r.Now == nil {
		r.Now = time.Now
	}
	if r.Step == nil {
		r.Step = func(string, int) {}
	}
	if r.reached == nil {
		r.reached = func(string) {}
	}
	if r.Each == nil {
		r.Each = func() {}
	}
	cfg, err := readConfig(r.Config)
	if err != nil {
		return nil, err
	}
	final := filepath.Join(cfg.DataDir, "broker")
	release, err := broker.Lock(final)
	if errors.Is(err, broker.ErrStoreInUse) {
		return nil, fmt.Errorf("%w: stop the provisioner, and keep what it has in %s by another name", err, final)
	}
	if err != nil {
		return nil, err
	}
	defer release()
	if err := checkEmpty(final); err != nil {
		return nil, err
	}
	r.reached("locked")
	// The whole file first: nothing is begun with one that is damaged.
	r.Step("checking", -1)
	info, err := CheckBackupFile(r.File, r.Each)
	if err != nil {
		return nil, err
	}
	if err := checkAuthority(cfg, info); err != nil {
		return nil, err
	}
	out := &Restored{BackupInfo: info}
	since, err := r.readJournals(cfg, info)
	if err != nil {
		return nil, err
	}
	defer since.close()
	r.reached("journal read")
	if since.lost != nil {
		if err := r.accepts(info, since.lost); err != nil {
			return nil, err
		}
		out.Lost = since.lost.Error()
	}
	staging := filepath.Join(cfg.DataDir, restoringDir)
	if err := os.RemoveAll(staging); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(staging) }() // the next one would, too
	r.reached("cleared")
	if err := r.fill(ctx, cfg, staging, since, out); err != nil {
		return nil, err
	}
	r.reached("filled")
	// Before the store has its place: if this is the last step, the journals say
	// that something was lost, and the next try has to be told so again.
	if err := since.end(r.Now()); err != nil {
		return nil, err
	}
	r.reached("journal told")
	if err := r.place(cfg.DataDir, staging, final); err != nil {
		return nil, err
	}
	r.reached("placed")
	return out, nil
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
	return fmt.Errorf("%w: the backup is of installation %s with the CA certificate %s, ours is %s: name the configuration that belongs to it with --config",
		store.ErrInstallation, info.Installation, info.CAFingerprint, fingerprintOf(root))
}

// fingerprintOf is [ca.Authority.Fingerprint] of an authority whose key is not
// at hand.
func fingerprintOf(root *x509.Certificate) string {
	sum := sha256.Sum256(root.Raw)
	return hex.EncodeToString(sum[:])
}

// fill makes the store in a directory of its own and brings it to the disk.
func (r *Restore) fill(ctx context.Context, cfg Config, dir string, since *since, out *Restored) (err error) {
	b, err := broker.New(broker.Config{
		Listen: "127.0.0.1:0", StoreDir: dir, StoreLimit: func() (int64, error) { return maxStore(dir) }, Unsynced: true,
		ClientCAs: x509.NewCertPool(), MaxConnections: 16, Log: r.Log,
		Gate: broker.GateConfig{
			TrustDomain: cfg.TrustDomain, Now: r.Now,
			VerifyToken: func(broker.Presented) (time.Time, error) { return time.Time{}, errRestoring },
			AdmitNode:   func(context.Context, wire.Identity, string) error { return errRestoring },
		},
	})
	if err != nil {
		return err
	}
	if err := b.Start(ctx); err != nil {
		return err
	}
	r.reached("broker started")
	err = r.copy(ctx, b, dir, since, out)
	r.reached("copied")
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err = errors.Join(err, b.Stop(stop)); err != nil {
		return err
	}
	if err := giveAllTo(dir, cfg.DataDir); err != nil {
		return err
	}
	return syncFiles(dir)
}

// errRestoring is what a stranger hears who finds the broker of a restore.
var errRestoring = errors.New("a store is being restored")

// copy writes the backup's messages to the broker's store.
func (r *Restore) copy(ctx context.Context, b *broker.Broker, dir string, since *since, out *Restored) error {
	conn, err := b.Connect("restore")
	if err != nil {
		return err
	}
	defer conn.Close()
	most, err := capacity(dir)
	if err != nil {
		return err
	}
	into, err := store.NewImport(ctx, store.Config{Conn: conn, Capacity: most, Log: r.Log, Now: r.Now}, out.ID)
	if err != nil {
		return err
	}
	f, err := os.Open(r.File)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	for _, t := range since.takeovers {
		into.Watch(t.Identity)
	}
	r.reached("streams made")
	r.Step("restoring", int(out.Messages()))
	again, err := readBackup(f, func(m *backup.Message) error {
		r.Each()
		if noted, _ := store.ProvisionersOf(m.Subject, m.Data); noted != nil && since.lost != nil {
			// Whose journals are not all there may not be there themselves. Nobody
			// looks for them any more: older backups are never complete again.
			return nil
		}
		return into.Message(ctx, m.Stream, m.Sequence, m.Subject, m.Data)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", r.File, err)
	}
	if again.ID != out.ID {
		return fmt.Errorf("%s: another file since it was checked", r.File)
	}
	if err := since.apply(ctx, into, r.Now().UTC().Truncate(time.Second), out); err != nil {
		return err
	}
	if since.newest.Before(out.EndedAt) {
		since.newest = out.EndedAt
	}
	if err := into.Finish(ctx, since.newest); err != nil {
		return err
	}
	return into.Done(ctx)
}

// place gives a finished store its place.
func (r *Restore) place(base, staging, final string) error {
	to := filepath.Join(final, jetStreamDir)
	// An empty directory gives way to a rename only if it holds none itself.
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	r.reached("place cleared")
	if err := os.Rename(filepath.Join(staging, jetStreamDir), to); err != nil {
		return err
	}
	r.reached("renamed")
	if err := giveAllTo(final, base); err != nil {
		return err
	}
	return errors.Join(syncDir(final), syncDir(base))
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
