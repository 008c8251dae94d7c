package serverconf

import (
	"fmt"

	"github.com/agnivade/levenshtein"
)

// Misspelled returns an error that names the known key that is nearest to key, or nil if key is known or far from all:
// other programs may read it.
func Misspelled(key string) error {
	best, meant := 3, ""
	for _, k := range known {
		if d := levenshtein.ComputeDistance(key, k); d < best && d <= len(key)/3 {
			best, meant = d, k
		}
	}
	if best == 0 || meant == "" {
		return nil
	}
	return fmt.Errorf("unknown key %q: did you mean %q?", key, meant)
}
