package bench

import (
	"encoding/binary"
	"slices"
	"time"
)

// microseconds is a latency as it is kept: exact, and an hour fits.
func microseconds(d time.Duration) uint32 { return uint32(min(max(d.Microseconds(), 0), 1<<32-1)) }

func encodeLatencies(all []uint32) []byte {
	b := make([]byte, 0, 4*len(all))
	for _, l := range all {
		b = binary.LittleEndian.AppendUint32(b, l)
	}
	return b
}

func decodeLatencies(b []byte) []uint32 {
	all := make([]uint32, 0, len(b)/4)
	for ; len(b) >= 4; b = b[4:] {
		all = append(all, binary.LittleEndian.Uint32(b))
	}
	return all
}

// quantile returns the q-quantile of sorted values, the nearest rank above; 0
// of none.
func quantile(sorted []uint32, q float64) uint32 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// milliseconds returns p50, p99 and p99.9 of latencies, which it sorts.
func milliseconds(all []uint32) (p50, p99, p999 float64) {
	slices.Sort(all)
	at := func(q float64) float64 { return float64(quantile(all, q)) / 1000 }
	return at(0.50), at(0.99), at(0.999)
}
