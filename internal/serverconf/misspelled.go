package serverconf

import (
	"fmt"

	"muster/internal/nearest"
)

// Misspelled returns an error that names the known key that is nearest to key, or nil if key is known or far from all:
// other programs may read it.
func Misspelled(key string) error {
	meant := nearest.Word(key, known, 3)
	if meant == key || meant == "" {
		return nil
	}
	return fmt.Errorf("unknown key %q: did you mean %q?", key, meant)
}
