package discover

// Draw runs the ordering of RFC 2782 over weights of one priority and returns
// them in the order to try.
func Draw(weights []uint16, random func(n int64) int64) []uint16 {
	records := make([]srv, len(weights))
	for i, w := range weights {
		records[i] = srv{weight: w}
	}
	var drawn []uint16
	for _, r := range order(records, random) {
		drawn = append(drawn, r.weight)
	}
	return drawn
}
