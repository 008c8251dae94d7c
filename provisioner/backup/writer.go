package backup

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
)

// A Writer writes a backup. After an error it is of no use, and neither is what
// it has written. It is for one goroutine.
type Writer struct {
	packed  *zstd.Encoder
	summary Summary
	scratch []byte
}

// NewWriter begins a backup on w. The header's version is set.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Version = Version
	if err := h.Check(); err != nil {
		return nil, err
	}
	b := &Writer{}
	if _, err := io.WriteString(w, magic); err != nil {
		return nil, err
	}
	var err error
	// One goroutine: a backup that runs beside a provisioner is not to take a
	// second core from it.
	if b.packed, err = zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)); err != nil {
		return nil, err
	}
	return b, b.json(itemHeader, h)
}

// Stream begins the messages of a stream.
func (w *Writer) Stream(name string) error {
	w.summary.Streams = append(w.summary.Streams, Stream{Name: name})
	return w.item(itemStream, []byte(name))
}

// Message adds a message to the stream that was begun last. Sequences ascend.
func (w *Writer) Message(sequence uint64, subject string, data []byte) error {
	if len(w.summary.Streams) == 0 {
		return errors.New("a message of no stream")
	}
	s := &w.summary.Streams[len(w.summary.Streams)-1]
	if sequence <= s.Last {
		return fmt.Errorf("message %d of %s after %d", sequence, s.Name, s.Last)
	}
	s.Messages++
	s.Bytes += uint64(len(subject) + len(data))
	s.Last = sequence
	b := binary.AppendUvarint(w.scratch[:0], sequence)
	b = binary.AppendUvarint(b, uint64(len(subject)))
	b = append(append(b, subject...), data...)
	w.scratch = b
	return w.item(itemMessage, b)
}

// Close ends the backup with its summary and the sum of the frame. It does not close what it
// was written to. Without it there is no backup.
func (w *Writer) Close(at time.Time) (*Summary, error) {
	w.summary.EndedAt = at
	if err := w.json(itemSummary, w.summary); err != nil {
		return nil, err
	}
	if err := w.packed.Close(); err != nil {
		return nil, err
	}
	return &w.summary, nil
}

// Abandon ends the work of a Writer that is not to be closed.
func (w *Writer) Abandon() {
	w.packed.Reset(nil) // what was not written is of no use
}

func (w *Writer) json(kind byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.item(kind, b)
}

func (w *Writer) item(kind byte, content []byte) error {
	if len(content) > maxItemBytes {
		return fmt.Errorf("item of %d bytes, limit %d", len(content), maxItemBytes)
	}
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = kind
	n := 1 + binary.PutUvarint(head[1:], uint64(len(content)))
	if _, err := w.packed.Write(head[:n]); err != nil {
		return err
	}
	_, err := w.packed.Write(content)
	return err
}
