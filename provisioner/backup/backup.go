// Package backup is the form of a backup file: what of a store has to be kept,
// as one stream that is written and read from front to back in little memory.
//
// The file is a line that says what it is, then one frame of zstd, with its sum, of items. An item is a byte for its kind, its length
// and its content: one header, then for each stream its name and its messages in
// their order, and in the end a summary with the counts. So a file that was cut
// short or altered, anywhere, is known for it when it is read to its end, and
// not before: whoever acts on a message acts on one that is not verified yet,
// and has to be able to take it back.
//
// The sum is against accidents. It is no signature: whoever can write the file
// can write another sum. A backup holds no secret, but whoever can alter it
// decides who has which name after it is restored.
//
// The package knows nothing of what the messages mean.
package backup

import (
	"errors"
	"fmt"
	"time"
)

// Version is the version of the form. A reader refuses every other.
const Version = 1

// magic is the first line of a file.
const magic = "muster backup 1\n"

// maxItemBytes bounds one item: the largest message that the broker takes, 8
// MiB, and its subject.
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

// Last returns the sequence of the last message of a stream, 0 if it has none.
func (s *Summary) Last(stream string) uint64 {
	for _, t := range s.Streams {
		if t.Name == stream {
			return t.Last
		}
	}
	return 0
}

// A Message is one message of a stream.
type Message struct {
	Stream   string
	Sequence uint64 // its place in the stream, 1 or more
	Subject  string
	Data     []byte // the reader's; good until the next one is read
}

// Kinds of items.
const (
	itemHeader  = 'H'
	itemStream  = 'S'
	itemMessage = 'M'
	itemSummary = 'E'
)

// damaged says what about a file is not as it was written.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}
