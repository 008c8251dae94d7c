package store

import (
	"context"
	"encoding/hex"
	"fmt"

	"muster/internal/wire"
	"muster/provisioner"
)

// Entries about pauses: one subject for the installation and one for each site.
const (
	subjectPauses       = "muster.entry.pause."
	subjectPausedAll    = subjectPauses + "all"
	subjectPausedAtSite = subjectPauses + "site-"
)

// pauseSubject is where an entry goes. A site may hold what a subject cannot.
func pauseSubject(s *provisioner.Pause) string {
	if s.Site == "" {
		return subjectPausedAll
	}
	return subjectPausedAtSite + hex.EncodeToString([]byte(s.Site))
}

// NextPause implements [provisioner.PauseStore].
func (s *Store) NextPause(ctx context.Context, after provisioner.Sequence) (*provisioner.Pause, provisioner.Sequence, error) {
	var found provisioner.Pause
	m, err := s.next(ctx, s.entries, subjectPauses+"*", uint64(after), &found)
	if err == nil && m != nil {
		if err = found.Check(); err == nil && m.Subject != pauseSubject(&found) {
			err = fmt.Errorf("pause of site %q on %s", found.Site, m.Subject)
		}
		if err != nil {
			err = fmt.Errorf("sequence %d: %w", m.Sequence, err)
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read pauses: %w", err)
	}
	if m == nil {
		return nil, 0, nil
	}
	return &found, provisioner.Sequence(m.Sequence), nil
}

// PutPause implements [provisioner.PauseStore].
func (s *Store) PutPause(ctx context.Context, p *provisioner.Pause) error {
	if _, err := s.append(ctx, pauseSubject(p), p, wire.NewID()); err != nil {
		return fmt.Errorf("write pause: %w", err)
	}
	return nil
}
