package cli

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

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

// PrintableJSON returns JSON with unprintable characters as escapes, which a terminal shows and a program reads as
// before. A text without them is returned as it is.
func PrintableJSON(text []byte) []byte {
	if !slices.ContainsFunc(text, func(c byte) bool { return c >= 0x7f }) {
		return text // JSON escapes the control characters of ASCII
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case r < 0x7f, r != utf8.RuneError && unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
	}
	return b.Bytes()
}

func unprintable(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
