package store

import (
	"context"
	"fmt"
)

// Reopen looks whether the store is still itself after its broker was
// restarted: a disk that comes back may have lost what was never synced, or may
// be another disk. Streams of reports that are gone are made anew; that the
// records are there is only looked at, since an empty store in place of theirs
// would free every identity. The error is [ErrInstallation] if it is another
// store, or says which stream is missing: nothing may be issued then.
func (s *Store) Reopen(ctx context.Context) error {
	for _, c := range streams(s.replicas, s.capacity) {
		if reports(c.Name) {
			if _, err := s.js.CreateOrUpdateStream(ctx, c); err != nil {
				return fmt.Errorf("store: stream %s: %w", c.Name, full(err))
			}
			continue
		}
		if _, err := s.js.Stream(ctx, c.Name); err != nil {
			return fmt.Errorf("store: stream %s: %w", c.Name, err)
		}
	}
	var i Installation
	if _, err := s.last(ctx, s.entries, subjectInstallation, &i); err != nil {
		return fmt.Errorf("store: read installation: %w", err)
	}
	if i.ID != s.installation.ID {
		return fmt.Errorf("store: %w: it is %s, ours is %s: give the provisioner its own data directory back", ErrInstallation, i.ID, s.installation.ID)
	}
	return nil
}

// reports tells the streams of reports from those of records.
func reports(name string) bool { return name == streamEvents || name == streamAttempts }
