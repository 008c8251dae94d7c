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
// people and for the doctor. The agent itself reads no more of it than since
// when it waits.
type failure struct {
	Time     time.Time     `json:"time"` // by the machine's clock, UTC
	Identity wire.Identity `json:"identity"`
	Code     wire.Code     `json:"code,omitempty"` // of a refusal; empty if there was no answer
	Message  string        `json:"message"`
	Remedy   string        `json:"remedy,omitempty"`

	// WaitsFor says what a node that is told to wait waits for, and Since when it
	// was first told so, by the machine's clock. Both are empty for all others.
	WaitsFor string    `json:"waits_for,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// noteFailure records a failed attempt. It is not synced, and an error is no
// more than a line for debugging: the log has the failure too.
func (s *Server) noteFailure(ctx context.Context, id wire.Identity, err error, code wire.Code) {
	f := failure{
		Time:     s.cfg.Now().UTC().Truncate(time.Second),
		Identity: id,
		Code:     code,
		Message:  fmt.Sprintf("%.*s", maxLastText, err.Error()),
		Remedy:   fmt.Sprintf("%.*s", maxLastText, remedyOf(err)),
		WaitsFor: waitsFor(code),
	}
	if f.WaitsFor != "" {
		f.Since = s.waitsSince(&f)
	}
	b, failed := json.Marshal(f)
	if failed == nil {
		failed = writeUnsynced(s.at.last, append(b, '\n'), 0o600)
	}
	if failed != nil {
		s.cfg.Log.DebugContext(ctx, "failure not recorded", "err", failed)
	}
}

// waitsSince returns since when the node has been told to wait as it is now: an
// agent that is started again goes on waiting.
func (s *Server) waitsSince(now *failure) time.Time {
	before, err := readFailure(s.at.last)
	if err == nil && before != nil && before.Code == now.Code && before.Identity == now.Identity && !before.Since.IsZero() {
		return before.Since
	}
	return now.Time
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
