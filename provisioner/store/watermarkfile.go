package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"muster/internal/inputfile"
)

// Two slots are written in place in turn, so after a torn write one is intact. A rename with its syncs would take 0.64
// ms instead of 0.17 (measured).
const (
	slotBytes  = 4 << 10
	slotHeader = 4 + 8 + 4 // magic, counter, length; big-endian
	slotMagic  = 0x6d757374
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A WatermarkFile keeps the newest [Watermark]. It is not safe for concurrent use. Close it.
type WatermarkFile struct {
	file    *os.File
	counter uint64 // of the newest slot, which is slot counter%2
}

// OpenWatermark creates a missing file at its full size, so that a full disk cannot block writes. The watermark is nil
// if the file is new or damaged.
func OpenWatermark(path string) (*WatermarkFile, *Watermark, error) {
	f, err := inputfile.OpenState(path, 0)
	if err != nil {
		return nil, nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, 2*slotBytes))
	if err == nil && len(b) < 2*slotBytes {
		b = append(b, make([]byte, 2*slotBytes-len(b))...)
		_, err = f.WriteAt(b, 0)
		err = errors.Join(err, f.Sync())
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("watermark %s: %w", path, err), f.Close())
	}
	w := &WatermarkFile{file: f}
	var newest *Watermark
	for _, slot := range [][]byte{b[:slotBytes], b[slotBytes:]} {
		if mark, counter := readSlot(slot); mark != nil && counter > w.counter {
			newest, w.counter = mark, counter
		}
	}
	return w, newest, nil
}

func readSlot(slot []byte) (*Watermark, uint64) {
	length := int(binary.BigEndian.Uint32(slot[12:]))
	end := slotHeader + length
	if binary.BigEndian.Uint32(slot) != slotMagic || length < 0 || end+crc32.Size > len(slot) ||
		binary.BigEndian.Uint32(slot[end:]) != crc32.Checksum(slot[:end], castagnoli) {
		return nil, 0
	}
	var w Watermark
	if json.Unmarshal(slot[slotHeader:end], &w) != nil {
		return nil, 0
	}
	return &w, binary.BigEndian.Uint64(slot[4:])
}

// Write replaces the older slot and syncs. After an error the previous watermark is intact, and the process must end.
func (f *WatermarkFile) Write(w *Watermark) error {
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	if len(text) > slotBytes-slotHeader-crc32.Size {
		return fmt.Errorf("watermark %s: %d bytes, limit %d", f.file.Name(), len(text), slotBytes-slotHeader-crc32.Size)
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, slotBytes), slotMagic)
	b = binary.BigEndian.AppendUint64(b, f.counter+1)
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := f.file.WriteAt(b, int64((f.counter+1)%2)*slotBytes); err != nil {
		return fmt.Errorf("watermark: %w", err)
	}
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("watermark: %w", err)
	}
	f.counter++
	return nil
}

// Close closes the file.
func (f *WatermarkFile) Close() error { return f.file.Close() }
