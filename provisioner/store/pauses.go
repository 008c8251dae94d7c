package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
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
	m, err := s.nextEntry(ctx, subjectPauses+"*", after)
	if err != nil {
		return nil, 0, fmt.Errorf("read pauses: %w", err)
	}
	if m.sequence == 0 {
		return nil, 0, nil
	}
	p, err := decodePause(m)
	return p, provisioner.Sequence(m.sequence), err
}

// Pauses implements [provisioner.PauseStore].
func (s *Store) Pauses(ctx context.Context, after provisioner.Sequence, each func(*provisioner.Pause, provisioner.Sequence, error) error) error {
	return s.entriesAfter(ctx, subjectPauses+"*", after, func(m message) error {
		p, unread := decodePause(m)
		return each(p, provisioner.Sequence(m.sequence), unread)
	})
}

// decodePause returns the pause that a message is. One that cannot be read is a pause where it
// is about, with an error that wraps [provisioner.ErrUnread].
func decodePause(m message) (*provisioner.Pause, error) {
	var p provisioner.Pause
	err := decodeEntry(m, &p, func() string { return pauseSubject(&p) })
	if err == nil {
		return &p, nil
	}
	p = provisioner.Pause{Schema: provisioner.PauseSchema, At: m.at.UTC().Truncate(time.Second), Cause: provisioner.CauseUnread}
	if coded, ok := strings.CutPrefix(m.subject, subjectPausedAtSite); ok {
		site, _ := hex.DecodeString(coded) // else it is on no site's subject, and everything is paused
		p.Site = jwt.Site(site)
	}
	return &p, fmt.Errorf("read pauses: %w", err)
}

// PutPause implements [provisioner.PauseStore].
func (s *Store) PutPause(ctx context.Context, p *provisioner.Pause, after provisioner.Revision) error {
	if _, err := s.appendAfter(ctx, pauseSubject(p), p, wire.NewID(), after); err != nil {
		return fmt.Errorf("write pause: %w", err)
	}
	return nil
}
