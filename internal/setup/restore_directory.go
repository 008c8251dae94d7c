package setup

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"time"

	"muster/internal/daemon"
	"muster/internal/disk"
	"muster/internal/wire"
	"muster/provisioner/broker"
	"muster/provisioner/store"
)

// intoDirectory fills the store of an embedded broker under another name, syncs it, and renames it once it is complete.
// The broker that fills it refuses all connections.
func (f *filling) intoDirectory(ctx context.Context) error {
	staging := daemon.RestoringDir(f.cfg.StoreDir())
	if err := os.RemoveAll(staging); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(staging) }()        // the next restore deletes what this one could not
	if err := os.MkdirAll(staging, 0o700); err != nil { // no provisioner starts while staging exists
		return err
	}
	f.Reached("cleared")
	if err := f.fill(ctx, staging); err != nil {
		return errors.Join(disk.NeedRoom(staging, leastDisk), err)
	}
	f.Reached("filled")
	if err := f.place(staging, f.cfg.StoreDir()); err != nil {
		return err
	}
	f.Reached("placed")
	return nil
}

// leastDisk is the space that a store needs besides its messages, for its files and the next day. With less space, the
// error of a failed restore names the disk: the broker itself only times out.
const leastDisk = 4 << 20

func (f *filling) fill(ctx context.Context, dir string) (err error) {
	limit, capacity, err := disk.StoreSize(dir)
	if err != nil {
		return err
	}
	b, err := broker.New(broker.Config{
		Listen:         "127.0.0.1:0",
		StoreDir:       dir,
		MaxStoreBytes:  limit,
		Unsynced:       true,
		ClientCAs:      x509.NewCertPool(),
		MaxConnections: 16,
		Log:            f.Log,
		Gate: broker.GateConfig{
			TrustDomain: f.cfg.TrustDomain,
			Now:         f.Now,
			VerifyToken: func(broker.Presented) (time.Time, error) { return time.Time{}, errRestoring },
			AdmitNode:   func(context.Context, wire.Identity, broker.Certificate) error { return errRestoring },
		},
	})
	if err != nil {
		return err
	}
	if err = b.Start(ctx); err == nil {
		f.Reached("broker started")
		err = f.copyTo(ctx, b, capacity)
		f.Reached("copied")
	}
	// Stop the broker even if its start was interrupted: until it has stopped, it writes to dir.
	const enough = 30 * time.Second
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), enough)
	defer cancel()
	if err = errors.Join(err, b.Stop(stop)); err != nil {
		return err
	}
	if err := giveToOwnerOf(f.cfg.DataDir, dir); err != nil {
		return err
	}
	return disk.Sync(dir)
}

// errRestoring refuses connections to the restore's broker.
var errRestoring = errors.New("a store is being restored")

func (f *filling) copyTo(ctx context.Context, b *broker.Broker, capacity int64) error {
	conn, err := b.Connect("restore")
	if err != nil {
		return err
	}
	defer conn.Close()
	into, err := store.NewImport(ctx, store.Config{Conn: conn, Capacity: capacity, Log: f.Log, Now: f.Now}, f.out.ID)
	if err != nil {
		return err
	}
	f.Reached("streams made")
	return f.copy(ctx, into)
}

func (f *filling) place(staging, final string) error {
	to := daemon.StreamsDir(final)
	// Rename replaces only an empty directory.
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	f.Reached("place cleared")
	if err := os.Rename(daemon.StreamsDir(staging), to); err != nil {
		return err
	}
	f.Reached("renamed")
	real, err := filepath.EvalSymlinks(final)
	if err != nil {
		return err
	}
	if err := giveToOwnerOf(f.cfg.DataDir, real); err != nil {
		return err
	}
	return errors.Join(disk.SyncDir(final), disk.SyncDir(f.cfg.DataDir))
}
