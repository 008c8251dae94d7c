package console

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"muster/internal/cli"
)

// prose takes a text apart in which commands stand between backquotes: each second part is one.
func prose(text string) []string { return strings.Split(cli.Printable(text), "`") }

// sentence makes of an error's words a sentence.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	first, n := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[n:]
	return strings.TrimRight(text, ".") + "."
}
