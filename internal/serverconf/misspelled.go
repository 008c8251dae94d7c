package serverconf

import "fmt"

// Misspelled returns an error that names the known key that is nearest to key, or nil if key is known or far from all:
// other programs may read it.
func Misspelled(key string) error {
	best, meant := 3, ""
	for _, k := range known {
		if d := distance(key, k); d < best && d <= len(key)/3 {
			best, meant = d, k
		}
	}
	if best == 0 || meant == "" {
		return nil
	}
	return fmt.Errorf("unknown key %q: did you mean %q?", key, meant)
}

// distance counts the letters to insert, remove or change (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
