package daemon

import (
	"context"
	"fmt"
	"io"
	"time"

	"muster/internal/wire"
	"muster/provisioner/backup"
	"muster/provisioner/store"
)

// Backup writes a backup to w while requests go on; the log names by. started is called first, with the approximate
// number of messages.
func (d *Daemon) Backup(ctx context.Context, by string, started func(messages uint64), w io.Writer) error {
	s := d.Store()
	if s == nil {
		return errNotOpen
	}
	messages, err := s.Backup.Pending(ctx)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	header := backup.Header{
		ID:            wire.NewID(),
		Installation:  s.Installation().ID,
		CAFingerprint: s.Installation().CAFingerprint,
		StartedAt:     d.opts.Now().UTC().Truncate(time.Second),
		By:            by,
	}
	started(messages)
	// A backup of a store that lost data would look complete.
	if err := s.CheckWatermark(ctx); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	summary, err := writeBackup(ctx, s, w, header, d.opts.Now)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	d.opts.Log.InfoContext(ctx, "backup made", "backup", header.ID, "by", by, "messages", summary.Messages())
	return nil
}

func writeBackup(ctx context.Context, s *store.Store, w io.Writer, header backup.Header,
	now func() time.Time) (*backup.Summary, error) {
	b, err := backup.NewWriter(w, header)
	if err != nil {
		return nil, err
	}
	if err := s.Backup.Export(ctx, b.Message); err != nil {
		return nil, err
	}
	return b.Close(now().UTC().Truncate(time.Second))
}
