package discover

// Draw orders weights of one priority.
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
