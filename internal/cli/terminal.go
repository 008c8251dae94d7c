package cli

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// IsTerminal reports whether f, any stream, is a terminal.
func IsTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && file != nil && term.IsTerminal(int(file.Fd()))
}

// Printable returns s with tabs as blanks, and every other character that is not
// printable, line ends apart, written as \u followed by its code: escape sequences
// and marks that turn text around among them. Text of a token that nobody vouches
// for could otherwise rewrite what a terminal shows.
func Printable(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd") // a lone byte may be a control character of an 8-bit terminal
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\t':
			b.WriteString("    ") // as in what a policy's compiler quotes
		case unprintable(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
