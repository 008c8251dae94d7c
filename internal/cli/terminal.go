package cli

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// IsTerminal reports whether the stream f is a terminal.
func IsTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && file != nil && term.IsTerminal(int(file.Fd()))
}

// Printable returns s with tabs as blanks and other unprintable characters except line ends written as \u and their
// code. Escape sequences and direction marks in the text of an unverified token could otherwise rewrite the terminal.
func Printable(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd") // a lone byte may be a control character of an 8-bit terminal
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\t':
			b.WriteString("    ") // as a policy's compiler quotes it
		case unprintable(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
