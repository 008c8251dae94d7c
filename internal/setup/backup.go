package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"muster/provisioner/backup"
	"muster/provisioner/store"
)

// A BackupInfo is what is known of a backup that was read to its end.
type BackupInfo struct {
	backup.Header
	backup.Summary

	takes int64 // bytes on the disk, once it is a store; of a file that was checked
}

// besideMessage is what a store keeps with a message, in bytes: 22 in front of it, 8
// behind, and what its index takes; the latter chosen.
const besideMessage = 64

// ErrUnknown means that something in a backup is none of this version of muster, and so
// cannot be restored by it. Another version has written it; one that is as new can.
var ErrUnknown = errors.New("this version of muster cannot read what is in it")

// CheckBackup reads a backup to its end and checks that it is whole, or the error wraps
// [backup.ErrDamaged], and that this version of muster can restore it, or it wraps
// [ErrUnknown]. each is called with every message.
func CheckBackup(ctx context.Context, r io.Reader, each func()) (*BackupInfo, error) {
	var takes int64
	info, err := readBackup(r, func(m *backup.Message) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		each()
		takes += int64(len(m.Subject) + len(m.Data) + besideMessage)
		if err := store.CheckMessage(m.Stream, m.Sequence, m.Subject, m.Data); err != nil {
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	info.takes = takes
	return info, nil
}

// CheckBackupFile is [CheckBackup] of the file at path.
func CheckBackupFile(ctx context.Context, path string, each func()) (*BackupInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := CheckBackup(ctx, f, each)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return info, nil
}

// readBackup calls each for every message of a backup, and returns what it is
// once it is known to be whole.
func readBackup(r io.Reader, each func(*backup.Message) error) (*BackupInfo, error) {
	b, err := backup.NewReader(r)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	for {
		m, err := b.Next()
		if errors.Is(err, io.EOF) {
			return &BackupInfo{Header: b.Header, Summary: *b.Summary()}, nil
		}
		if err != nil {
			return nil, err
		}
		if err := each(m); err != nil {
			return nil, err
		}
	}
}
