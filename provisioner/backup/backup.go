// Package backup reads and writes backup files, and the journal of revocations. A backup file is a magic line and a
// zstd frame with a checksum. The frame holds JSON lines: a header, messages, and a summary. Damage may show only at
// the end, so a caller must be able to undo a restore.
//
// The checksum is no signature: write access to a backup decides which key gets which name in a restore. A backup holds
// no secret.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Version is the version of the format. A reader refuses all other versions.
const Version = 1

const magic = "muster backup 1\n"

// maxItemBytes is room for the broker's largest message, 8 MiB, and its subject.
const maxItemBytes = 8<<20 + 64<<10

// ErrDamaged means that a file is not a complete backup.
var ErrDamaged = errors.New("not a complete backup")

// A Header describes a backup.
type Header struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // unique; marks a store that is being restored

	// CAFingerprint is the hex SHA-256 of the root certificate.
	Installation  string `json:"installation"`
	CAFingerprint string `json:"ca"`

	StartedAt time.Time `json:"started_at"` // the backup has all earlier writes
	By        string    `json:"by,omitempty"`
}

// Check validates a header.
func (h *Header) Check() error {
	switch {
	case h.Version != Version:
		return fmt.Errorf("backup of version %d, this program reads version %d", h.Version, Version)
	case h.ID == "" || h.Installation == "" || h.CAFingerprint == "" || h.StartedAt.IsZero():
		return errors.New("the header lacks the id, installation, CA fingerprint or start time")
	}
	return nil
}

// A Stream has the counts of one stream in a backup.
type Stream struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"` // of subjects and data, uncompressed
	Last     uint64 `json:"last"`  // sequence of the last message, or 0
}

// A Summary is the last line of a backup.
type Summary struct {
	EndedAt time.Time `json:"ended_at"`
	Streams []Stream  `json:"streams"` // in the order of the file
}

// Messages returns the number of messages in the backup.
func (s *Summary) Messages() (n uint64) {
	for _, stream := range s.Streams {
		n += stream.Messages
	}
	return n
}

func (s *Summary) add(m *Message) error {
	n := len(s.Streams)
	if n == 0 || s.Streams[n-1].Name != m.Stream {
		if m.Stream == "" || slices.ContainsFunc(s.Streams, func(t Stream) bool { return t.Name == m.Stream }) {
			return fmt.Errorf("stream %.80q has no name, or its messages are not together", m.Stream)
		}
		s.Streams = append(s.Streams, Stream{Name: m.Stream})
		n++
	}
	t := &s.Streams[n-1]
	if m.Sequence <= t.Last {
		return fmt.Errorf("stream %s: message %d follows message %d", t.Name, m.Sequence, t.Last)
	}
	t.Messages++
	t.Bytes += uint64(len(m.Subject) + len(m.Data))
	t.Last = m.Sequence
	return nil
}

// A Message is one message of a stream.
type Message struct {
	Stream   string          `json:"stream"`
	Sequence uint64          `json:"sequence"` // in the stream, from 1
	Subject  string          `json:"subject"`
	Data     json.RawMessage `json:"data"`
}

// Exactly one member of an item is set.
type item struct {
	Header  *Header  `json:"header,omitempty"`
	Message *Message `json:"message,omitempty"`
	Summary *Summary `json:"summary,omitempty"`
}

func errDamaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}
