// Package backup is the form of a backup file: what of a store has to be kept,
// as one stream that is written and read from front to back in little memory.
//
// The file is a line that says what it is, then one frame of zstd, with its sum, of lines of JSON: a header, the messages
// of each stream in their order, and in the end a summary with the counts. So a file that was cut short or altered,
// anywhere, is known for it when it is read to its end, and not before: a caller that acts on a message acts on one that
// is not verified yet, and has to be able to take it back.
//
// The sum is against accidents. It is no signature: whoever can write the file
// can write another sum. A backup holds no secret, but whoever can alter it
// decides who has which name after it is restored.
//
// The package knows nothing of what the messages mean.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Version is the version of the form. A reader refuses every other.
const Version = 1

// magic is the first line of a file.
const magic = "muster backup 1\n"

// maxItemBytes bounds one item: the largest message that the broker takes, 8
// MiB, its subject and the names of members.
const maxItemBytes = 8<<20 + 64<<10

// ErrDamaged means that a file is no backup, or not as it was written: cut
// short, altered, or not finished. Take another one.
var ErrDamaged = errors.New("not a whole backup")

// A Header says what a backup is of.
type Header struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // unique to the backup; the journal names it

	// Installation is the id of the store, and CAFingerprint the root certificate
	// that it was bound to: hex SHA-256.
	Installation  string `json:"installation"`
	CAFingerprint string `json:"ca"`

	StartedAt time.Time `json:"started_at"` // what was written before is in it
	By        string    `json:"by,omitempty"`
}

// Check reports what of a header cannot be.
func (h *Header) Check() error {
	switch {
	case h.Version != Version:
		return fmt.Errorf("backup of version %d, this program reads version %d", h.Version, Version)
	case h.ID == "" || h.Installation == "" || h.CAFingerprint == "" || h.StartedAt.IsZero():
		return errors.New("backup without id, installation, authority or time")
	}
	return nil
}

// A Stream is what a backup has of one stream.
type Stream struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"` // of subjects and contents, not compressed
	Last     uint64 `json:"last"`  // sequence of the last message, 0 of none
}

// A Summary is the end of a backup.
type Summary struct {
	EndedAt time.Time `json:"ended_at"`
	Streams []Stream  `json:"streams"` // in the order of the file
}

// Messages returns how many messages the backup has.
func (s *Summary) Messages() (n uint64) {
	for _, stream := range s.Streams {
		n += stream.Messages
	}
	return n
}

// add counts a message, which comes after all others of its stream.
func (s *Summary) add(m *Message) error {
	n := len(s.Streams)
	if n == 0 || s.Streams[n-1].Name != m.Stream {
		if m.Stream == "" || slices.ContainsFunc(s.Streams, func(t Stream) bool { return t.Name == m.Stream }) {
			return fmt.Errorf("stream %.80q comes twice, or has no name", m.Stream)
		}
		s.Streams = append(s.Streams, Stream{Name: m.Stream})
		n++
	}
	t := &s.Streams[n-1]
	if m.Sequence <= t.Last {
		return fmt.Errorf("message %d of %s after %d", m.Sequence, t.Name, t.Last)
	}
	t.Messages++
	t.Bytes += uint64(len(m.Subject) + len(m.Data))
	t.Last = m.Sequence
	return nil
}

// A Message is one message of a stream.
type Message struct {
	Stream   string          `json:"stream"`
	Sequence uint64          `json:"sequence"` // its place in the stream, 1 or more
	Subject  string          `json:"subject"`
	Data     json.RawMessage `json:"data"`
}

// An item is a line of a backup; exactly one of its members is set.
type item struct {
	Header  *Header  `json:"header,omitempty"`
	Message *Message `json:"message,omitempty"`
	Summary *Summary `json:"summary,omitempty"`
}

// damaged says what about a file is not as it was written.
func errDamaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}
