package backup

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"muster/internal/wire"
)

// A Writer writes a backup. After an error its output is not a backup.
type Writer struct {
	encoder *zstd.Encoder
	summary Summary
	scratch []byte
}

// NewWriter writes the header of a backup, with [Version].
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
	// Compression uses one core and leaves the other cores to the provisioner.
	if b.encoder, err = zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1)); err != nil {
		return nil, err
	}
	return b, b.item(&item{Header: &h})
}

// Message adds a message with JSON data. The sequences of a stream must ascend.
func (w *Writer) Message(stream string, sequence uint64, subject string, data []byte) error {
	m := &Message{
		Stream:   stream,
		Sequence: sequence,
		Subject:  subject,
		Data:     data,
	}
	if err := wire.CheckStrict(data); err != nil {
		return fmt.Errorf("message %d of %s: %w", sequence, stream, err)
	}
	return errors.Join(w.summary.add(m), w.item(&item{Message: m}))
}

// Close ends the backup with its summary. It does not close the underlying writer.
func (w *Writer) Close(at time.Time) (*Summary, error) {
	w.summary.EndedAt = at
	if err := w.item(&item{Summary: &w.summary}); err != nil {
		return nil, err
	}
	if err := w.encoder.Close(); err != nil {
		return nil, err
	}
	return &w.summary, nil
}

func (w *Writer) item(i *item) error {
	b, err := wire.AppendJSON(w.scratch[:0], i)
	if err != nil {
		return err
	}
	w.scratch = append(b, '\n')
	if len(w.scratch) > maxItemBytes {
		return fmt.Errorf("item of %d bytes, limit %d", len(w.scratch), maxItemBytes)
	}
	_, err = w.encoder.Write(w.scratch)
	return err
}
