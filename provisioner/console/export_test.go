package console

import (
	"maps"
	"slices"
)

// Routes returns the patterns of all pages for operators.
func Routes() []string { return slices.Sorted(maps.Keys((&Console{}).table())) }
