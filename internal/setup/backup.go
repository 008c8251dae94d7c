package setup

import (
	"context"
	"errors"
	"fmt"
	"io"

	"muster/internal/inputfile"
	"muster/provisioner/backup"
	"muster/provisioner/store"
)

// A BackupInfo describes a backup that was read to its end.
type BackupInfo struct {
	backup.Header
	backup.Summary

	takes int64 // size of the restored store on disk, set by CheckBackup
}

// besideMessage is the overhead of a stored message: 22 bytes before it, 8 after it, and its share of the index.
const besideMessage = 64

// ErrUnknown means that a newer version of muster wrote the backup. Restore it with that version.
var ErrUnknown = errors.New("this version of muster cannot read its content")

// CheckBackup reads a backup to its end, and calls each for every message. The error wraps [backup.ErrDamaged] if the
// backup is incomplete, or [ErrUnknown].
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
	f, err := inputfile.Open(path, inputfile.Typed)
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

// readBackup calls each for every message, and returns an error unless the backup is complete.
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
