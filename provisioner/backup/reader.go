package backup

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// A Reader reads a backup from front to back. It is for one goroutine. Close it.
type Reader struct {
	Header Header // set by NewReader

	packed  *zstd.Decoder
	items   *bufio.Reader
	summary Summary // of what was read so far
	scratch []byte
	ended   bool
}

// NewReader reads the beginning of a backup. The error wraps [ErrDamaged] if it
// is none, or says of which version it is.
func NewReader(r io.Reader) (*Reader, error) {
	b := &Reader{}
	first := make([]byte, len(magic))
	_, err := io.ReadFull(r, first)
	if unread(err) {
		return nil, err
	}
	if err != nil || string(first) != magic {
		return nil, damaged("it does not begin with %q", magic)
	}
	// A writer's window is 4 MiB. The decoder checks the sum of the frame.
	if b.packed, err = zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(16<<20)); err != nil {
		return nil, err
	}
	b.items = bufio.NewReaderSize(b.packed, 64<<10)
	kind, content, err := b.item()
	if err == nil && kind != itemHeader {
		err = damaged("an item of kind %q comes before the header", kind)
	}
	if err == nil {
		if err = strictJSON(content, &b.Header); err == nil {
			err = b.Header.Check()
		}
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close ends the reader's work. It does not close what it reads from.
func (r *Reader) Close() { r.packed.Close() }

// Next returns the next message. After the last one it returns [io.EOF], and
// only that says that the backup is whole; any other error wraps [ErrDamaged],
// or is one of reading.
func (r *Reader) Next() (*Message, error) {
	for !r.ended {
		kind, content, err := r.item()
		if err != nil {
			return nil, err
		}
		switch kind {
		case itemStream:
			name := string(content)
			if slices.ContainsFunc(r.summary.Streams, func(s Stream) bool { return s.Name == name }) {
				return nil, damaged("stream %.80q comes twice", name)
			}
			r.summary.Streams = append(r.summary.Streams, Stream{Name: name})
		case itemMessage:
			return r.message(content)
		case itemSummary:
			if err := r.end(content); err != nil {
				return nil, err
			}
		default:
			return nil, damaged("an item of kind %q", kind)
		}
	}
	return nil, io.EOF
}

// Summary returns what the backup has, after Next has returned [io.EOF].
func (r *Reader) Summary() *Summary { return &r.summary }

func (r *Reader) message(content []byte) (*Message, error) {
	if len(r.summary.Streams) == 0 {
		return nil, damaged("a message of no stream")
	}
	s := &r.summary.Streams[len(r.summary.Streams)-1]
	sequence, n := binary.Uvarint(content)
	if n <= 0 || sequence <= s.Last {
		return nil, damaged("message %d of %s after %d", sequence, s.Name, s.Last)
	}
	content = content[n:]
	length, n := binary.Uvarint(content)
	if n <= 0 || length > uint64(len(content)-n) {
		return nil, damaged("message %d of %s: a subject of %d bytes in %d", sequence, s.Name, length, len(content))
	}
	content = content[n:]
	m := &Message{Stream: s.Name, Sequence: sequence, Subject: string(content[:length]), Data: content[length:]}
	s.Messages++
	s.Bytes += uint64(len(content))
	s.Last = sequence
	return m, nil
}

// end compares what was read with what was written.
func (r *Reader) end(content []byte) error {
	var want Summary
	if err := strictJSON(content, &want); err != nil {
		return err
	}
	if !slices.Equal(want.Streams, r.summary.Streams) {
		return damaged("it has %+v, and should have %+v", r.summary.Streams, want.Streams)
	}
	r.summary = want
	switch _, err := r.items.ReadByte(); {
	case err == nil:
		return damaged("something comes after its end")
	case !errors.Is(err, io.EOF):
		return cut(err)
	}
	r.ended = true
	return nil
}

// item reads one item. Its content is good until the next one is read.
func (r *Reader) item() (kind byte, content []byte, err error) {
	kind, err = r.items.ReadByte()
	if err != nil {
		return 0, nil, cut(err)
	}
	length, err := binary.ReadUvarint(r.items)
	if err != nil {
		return 0, nil, cut(err)
	}
	if length > maxItemBytes {
		return 0, nil, damaged("an item of %d bytes, limit %d", length, maxItemBytes)
	}
	r.scratch = slices.Grow(r.scratch[:0], int(length))[:length]
	if _, err := io.ReadFull(r.items, r.scratch); err != nil {
		return 0, nil, cut(err)
	}
	return kind, r.scratch, nil
}

// cut is an error of reading an item: whatever the decompressor says of what it
// got is damage, but a file that cannot be read is none.
func cut(err error) error {
	if unread(err) {
		return err
	}
	return damaged("%w", err)
}

// unread reports whether err is of a file that cannot be read, or of a reader who was told to end.
func unread(err error) bool {
	var file *fs.PathError
	return errors.As(err, &file) || errors.Is(err, context.Canceled)
}

func strictJSON(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return damaged("%w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return damaged("more than one value in an item")
	}
	return nil
}
