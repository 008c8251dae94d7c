package console

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"muster/internal/cli"
)

// prose splits a text at backquotes: odd parts are commands.
func prose(text string) []string { return strings.Split(cli.Printable(text), "`") }

// sentence makes a sentence of an error.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	first, n := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[n:]
	return strings.TrimRight(text, ".") + "."
}
