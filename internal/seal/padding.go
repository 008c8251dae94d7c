package seal

import "encoding/binary"

const (
	padTo       = 256 // chosen: a certificate request or two facts more do not show
	lengthBytes = 4
)

// padded returns the length of n bytes after [pad].
func padded(n int) int { return (lengthBytes + n + padTo - 1) / padTo * padTo }

// pad writes b behind its length into dst, which has [padded] bytes, all zero.
func pad(dst, b []byte) {
	binary.BigEndian.PutUint32(dst, uint32(len(b)))
	copy(dst[lengthBytes:], b)
}

// unpad returns what [pad] was given, as a part of b. It accepts nothing that
// pad does not write, so that there is one encoding of each message.
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
