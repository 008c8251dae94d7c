package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"muster/server/files"
	"os"

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

func (p pending) encode() ([]byte, error) {
	b, err := json.Marshal(p)
	return append(b, '\n'), err
}

func decodePending(b []byte) (*pending, error) {
	var p pending
	if err := wire.DecodeStrict(b, &p); err != nil {
		return nil, err
	}
	if p.Identity == "" || p.Serial == "" || p.Digest == "" {
		return nil, errors.New("identity, serial or digest missing")
	}
	return &p, nil
}

// pending returns what is yet to be confirmed, or nil if there is nothing.
func (s *sets) pending() (*pending, error) {
	b, err := files.Read(s.dir.Path(appliedFile), 4<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := decodePending(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.dir.Path(appliedFile), err)
	}
	return p, nil
}

// confirm records that what was pending is confirmed. It is not synced: a power failure that
// brings the file back costs one confirmation more, which is acknowledged like
// the first.
func (s *sets) confirm() error { return os.Remove(s.dir.Path(appliedFile)) }
