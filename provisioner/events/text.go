package events

import (
	"regexp"
	"strings"
)

// tokenShape matches a JWT, or what is left of one that was cut.
var tokenShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)*`)

// Scrub returns text without anything that looks like a token. What a stranger
// sent is quoted where it is refused, and a client with a bug may have put its
// token into any member of a request.
func Scrub(text string) string { return tokenShape.ReplaceAllString(text, "(secret)") }

// maxSaidBytes bounds what is said of why a stranger was refused; chosen, more than any reason of
// ours takes that quotes names of full length.
const maxErrorTextBytes = 1024

// BoundedText is [ErrorText] for an error that a stranger may have caused: it has [maxSaidBytes] at most.
func BoundedText(err error) string {
	text := ErrorText(err)
	if len(text) <= maxErrorTextBytes {
		return text
	}
	return strings.ToValidUTF8(Cut(text, maxErrorTextBytes), "") + "…"
}

// ErrorText is [Scrub] for the text of an error; "" for none.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return Scrub(err.Error())
}

// Cut returns at most n bytes of text.
func Cut(text string, n int) string { return text[:min(len(text), n)] }
