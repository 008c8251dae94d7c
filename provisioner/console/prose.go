package console

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A piece is a part of a text of ours: a time, what is to be typed, or words.
type piece struct {
	Text string
	Code bool
	At   time.Time // zero if it is none
	Link string    // where the words lead; empty: nowhere
}

// special is what is not words: a time, or what is between backquotes.
var special = regexp.MustCompile("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ|`[^`]+`")

// pieces takes a text apart that is written for terminals as well.
func pieces(text string) []piece {
	text = plain(text) // it quotes what strangers say
	var all []piece
	words := func(s string) {
		if s != "" {
			all = append(all, piece{Text: s})
		}
	}
	for len(text) > 0 {
		at := special.FindStringIndex(text)
		if at == nil {
			break
		}
		words(text[:at[0]])
		found := text[at[0]:at[1]]
		if t, err := time.Parse(time.RFC3339, found); err == nil {
			all = append(all, piece{At: t})
		} else {
			all = append(all, piece{Text: strings.Trim(found, "`"), Code: found[0] == '`'})
		}
		text = text[at[1]:]
	}
	words(text)
	return all
}

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
