package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"muster/server/files"

	"muster/internal/wire"
)

// pending is what the node has applied and is yet to confirm. It is switched
// with the set, as applied.json, and removed when the confirmation is on record;
// an agent that dies in between leaves it to the next one.
type pending struct {
	Identity string `json:"identity"`
	Serial   string `json:"serial"`
	Digest   string `json:"digest"`
}

// pending returns what is yet to be confirmed, or nil if there is nothing.
func (s *sets) pending() (*pending, error) {
	path := s.dir.Path(appliedFile)
	b, err := files.Read(path, 4<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var p pending
	if err := wire.DecodeStrict(b, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if p.Identity == "" || p.Serial == "" || p.Digest == "" {
		return nil, fmt.Errorf("%s: identity, serial or digest missing", path)
	}
	return &p, nil
}

// confirm records that what was pending is confirmed. It is not synced: a power failure that
// brings the file back costs one confirmation more, which is acknowledged like
// the first.
func (s *sets) confirm() error { return os.Remove(s.dir.Path(appliedFile)) }
