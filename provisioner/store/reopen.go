package store

import (
	"context"
	"errors"
	"fmt"
)

// ErrRestored means that a backup was restored under a store that was open: what
// its provisioner remembers is of another one. Restart the provisioner.
var ErrRestored = errors.New("a backup was restored while the store was open: restart the provisioner")

// Reopen looks whether the store is still itself after its broker was
// restarted: a disk that comes back may have lost what was never synced, or may
// be another disk. Streams of reports that are gone are made anew; that the
// records are there is only looked at, since an empty store in place of theirs
// would free every identity. The error is [ErrInstallation] if it is another
// store, [ErrRestored] or [ErrHalfRestored] if a backup is in its place, or says which stream is missing: nothing may be issued then.
func (s *Store) Reopen(ctx context.Context) error {
	switch r, err := checkRestored(ctx, s.js); {
	case err != nil:
		return fmt.Errorf("store: %w", err)
	case r != s.restored && r != (restore{}):
		return fmt.Errorf("store: %w", ErrRestored)
	}
	all := streams(s.replicas, s.capacity, s.inputBytes)
	for _, c := range all {
		if _, err := s.js.Stream(ctx, c.Name); err != nil && !reports(c.Name) {
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
	// Last: where the records are not, these would be in the way of a restore.
	for _, c := range all {
		if !reports(c.Name) {
			continue
		}
		if _, err := s.js.CreateOrUpdateStream(ctx, c); err != nil {
			return fmt.Errorf("store: stream %s: %w", c.Name, full(err))
		}
	}
	return nil
}

// reports tells the streams of reports from those of records.
func reports(name string) bool {
	return name == streamEvents || name == streamAttempts || name == streamInputs || name == streamWaiting || name == streamComponents
}
