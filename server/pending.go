package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"muster/internal/inputfile"
	"muster/internal/wire"
)

// pending is an unsent confirmation. It is a file of the set until the provisioner has recorded it, so a restarted
// agent sends it.
type pending struct {
	Identity string `json:"identity"`
	Serial   string `json:"serial"`
	Digest   string `json:"digest"`

	ReceiptSum string `json:"receipt_sum,omitempty"` // as offered
}

func (s *sets) pending() (*pending, error) {
	path := s.dir.Path(appliedFile)
	b, err := inputfile.Read(path, inputfile.Configured, 4<<10)
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

// confirm needs no sync: if a power failure restores the file, the node confirms again, which is harmless.
func (s *sets) confirm() error { return os.Remove(s.dir.Path(appliedFile)) }
