package console

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// prose takes a text apart in which commands stand between backquotes: each second part is one.
func prose(text string) []string { return strings.Split(plain(text), "`") }

// plain returns what strangers say of themselves as all of it can be seen: marks that turn
// text around, or that nobody sees, are written as \u and their code, as on terminals.
func plain(text string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }
	if text = strings.ToValidUTF8(text, "\ufffd"); strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if hidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// sentence makes of an error's words a sentence.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	first, n := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[n:]
	return strings.TrimRight(text, ".") + "."
}
