package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"muster/internal/wire"
)

// maxLastText bounds each text of a failure on disk: a list of brokers that all
// failed is the longest. maxLastBytes bounds the file, in which JSON may write
// a byte as six.
const (
	maxLastText  = 8 << 10
	maxLastBytes = 128 << 10
)

// failure is why the last attempt to enroll led to nothing, kept on disk for
// people and for the doctor. The agent itself never reads it.
type failure struct {
	Time     time.Time     `json:"time"` // by the machine's clock, UTC
	Identity wire.Identity `json:"identity"`
	Code     wire.Code     `json:"code,omitempty"` // of a refusal; empty if there was no answer
	Message  string        `json:"message"`
	Remedy   string        `json:"remedy,omitempty"`
}

// noteFailure records a failed attempt. It is not synced, and an error is no
// more than a line for debugging: the log has the failure too.
func (s *Server) noteFailure(ctx context.Context, id wire.Identity, err error, code wire.Code) {
	b, failed := json.Marshal(failure{
		Time:     s.cfg.Now().UTC().Truncate(time.Second),
		Identity: id,
		Code:     code,
		Message:  fmt.Sprintf("%.*s", maxLastText, err.Error()),
		Remedy:   fmt.Sprintf("%.*s", maxLastText, remedyOf(err)),
	})
	if failed == nil {
		failed = writeUnsynced(s.at.last, append(b, '\n'), 0o600)
	}
	if failed != nil {
		s.cfg.Log.DebugContext(ctx, "failure not recorded", "err", failed)
	}
}

// forgetFailure removes the record, and what an agent that was killed while it
// wrote one left.
func (s *Server) forgetFailure(ctx context.Context) {
	for _, path := range []string{s.at.last, tempName(s.at.last)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.cfg.Log.DebugContext(ctx, "record of a failure not removed", "err", err)
		}
	}
}

// readFailure returns the last failure, or nil if none is on record.
func readFailure(path string) (*failure, error) {
	b, err := readBounded(path, maxLastBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f failure
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return &f, nil
}
