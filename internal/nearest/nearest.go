// Package nearest guesses which word a mistyped one was meant to be. Sole owner of the library that counts letters.
package nearest

import (
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// Word returns the first of the words with the fewest different letters, "" if none has at most two, and at most one
// in share letters of word. A word that is known has no difference, and is returned.
func Word(word string, words []string, share int) (meant string) {
	best := 3
	for _, w := range words {
		if d := levenshtein.ComputeDistance(word, w); d < best && d <= utf8.RuneCountInString(word)/share {
			best, meant = d, w
		}
	}
	return meant
}
