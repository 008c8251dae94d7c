package backup

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/klauspost/compress/zstd"

	"muster/internal/wire"
)

// A Reader reads a backup. It is for one goroutine. Close it.
type Reader struct {
	Header Header

	decoder *zstd.Decoder
	lines   *bufio.Scanner
	summary Summary // read so far
	ended   bool
}

// NewReader reads the header of a backup.
func NewReader(r io.Reader) (*Reader, error) {
	first := make([]byte, len(magic))
	_, err := io.ReadFull(r, first)
	if cannotRead(err) {
		return nil, err
	}
	if err != nil || string(first) != magic {
		return nil, errDamaged("it does not begin with %q", magic)
	}
	// Backups have a window of 4 MiB. The decoder verifies the checksum.
	packed, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(16<<20))
	if err != nil {
		return nil, err
	}
	b := &Reader{decoder: packed, lines: bufio.NewScanner(packed)}
	b.lines.Buffer(nil, maxItemBytes)
	i, err := b.item()
	if err == nil && i.Header == nil {
		err = errDamaged("it has no header")
	}
	if err == nil {
		b.Header = *i.Header
		err = b.Header.Check()
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close does not close the underlying reader.
func (r *Reader) Close() { r.decoder.Close() }

// Next returns the next message, and [io.EOF] at the end of a complete backup. Other errors wrap [ErrDamaged] or come
// from the underlying reader.
func (r *Reader) Next() (*Message, error) {
	if r.ended {
		return nil, io.EOF
	}
	i, err := r.item()
	if err != nil {
		return nil, err
	}
	switch {
	case i.Message != nil:
		if err := r.summary.add(i.Message); err != nil {
			return nil, errDamaged("%w", err)
		}
		return i.Message, nil
	case i.Summary == nil:
		return nil, errDamaged("an empty item")
	case !slices.Equal(i.Summary.Streams, r.summary.Streams):
		return nil, errDamaged("its streams are %+v, its summary says %+v", r.summary.Streams, i.Summary.Streams)
	case r.lines.Scan():
		return nil, errDamaged("data after the end")
	case r.lines.Err() != nil:
		return nil, readError(r.lines.Err())
	}
	r.summary, r.ended = *i.Summary, true
	return nil, io.EOF
}

// Summary returns the backup's summary. It is complete once Next has returned [io.EOF].
func (r *Reader) Summary() *Summary { return &r.summary }

func (r *Reader) item() (*item, error) {
	if !r.lines.Scan() {
		return nil, readError(cmp.Or(r.lines.Err(), io.ErrUnexpectedEOF))
	}
	i := &item{}
	if err := wire.DecodeStrict(r.lines.Bytes(), i); err != nil {
		return nil, readError(cmp.Or(r.lines.Err(), err))
	}
	return i, nil
}

// readError treats decompression errors as damage, but not errors of the file.
func readError(err error) error {
	if cannotRead(err) {
		return err
	}
	return errDamaged("%w", err)
}

func cannotRead(err error) bool {
	_, file := errors.AsType[*fs.PathError](err)
	return file || errors.Is(err, context.Canceled)
}
