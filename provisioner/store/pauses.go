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
	var p provisioner.Pause
	m, err := s.nextEntry(ctx, subjectPauses+"*", after, &p, func() string { return pauseSubject(&p) })
	if err != nil {
		err = fmt.Errorf("read pauses: %w", err)
	}
	if m == nil {
		return nil, 0, err
	}
	if err != nil {
		p = provisioner.Pause{Schema: provisioner.PauseSchema, At: m.Time.UTC().Truncate(time.Second), Cause: provisioner.CauseUnread}
		if coded, ok := strings.CutPrefix(m.Subject, subjectPausedAtSite); ok {
			site, _ := hex.DecodeString(coded) // else it is on no site's subject, and everything is paused
			p.Site = jwt.Site(site)
		}
	}
	return &p, provisioner.Sequence(m.Sequence), err
}

// PutPause implements [provisioner.PauseStore].
func (s *Store) PutPause(ctx context.Context, p *provisioner.Pause, after provisioner.Revision) error {
	if _, err := s.appendAfter(ctx, pauseSubject(p), p, wire.NewID(), after); err != nil {
		return fmt.Errorf("write pause: %w", err)
	}
	return nil
}
