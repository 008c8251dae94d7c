package wire

import "strings"

// FoldName returns a name as people and systems write it in the form that [ParseIdentity] and [ParsePattern] accept:
// without blanks around it and the dot at its end, and in lower case. Letters beyond ASCII stay and are refused: some
// have an ASCII letter as lower case.
func FoldName(s string) string {
	s = strings.TrimSuffix(strings.TrimSpace(s), ".")
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

// ParseName is [ParseIdentity] of a name from a person, a file or the system.
func ParseName(s string) (Identity, error) { return ParseIdentity(FoldName(s)) }

// ParseNamePattern is [ParsePattern] of a pattern from a person or a file.
func ParseNamePattern(s string) (Pattern, error) { return ParsePattern(FoldName(s)) }

// FoldHash returns a hash in hex as other programs print it in the form of our own: in lower case, without blanks,
// colons and `SHA256:` in front.
func FoldHash(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	return strings.NewReplacer(":", "", " ", "").Replace(strings.TrimPrefix(s, "sha256:"))
}
