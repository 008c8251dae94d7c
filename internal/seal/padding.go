package seal

import "encoding/binary"

const (
	padTo       = 256 // hides small differences in size
	lengthBytes = 4
)

func padded(n int) int { return (lengthBytes + n + padTo - 1) / padTo * padTo }

// pad writes b's length and b into dst, which has [padded] zero bytes.
func pad(dst, b []byte) {
	binary.BigEndian.PutUint32(dst, uint32(len(b)))
	copy(dst[lengthBytes:], b)
}

// unpad accepts only what pad writes, so that each message has one encoding.
func unpad(b []byte) ([]byte, bool) {
	if len(b) < lengthBytes {
		return nil, false
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if n > uint64(len(b)) || padded(int(n)) != len(b) {
		return nil, false
	}
	end := lengthBytes + int(n)
	for _, c := range b[end:] {
		if c != 0 {
			return nil, false
		}
	}
	return b[lengthBytes:end:end], true
}
