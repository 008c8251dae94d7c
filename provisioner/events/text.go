package events

import (
	"regexp"
	"strings"
)

// tokenShape matches a JWT, even a truncated one.
var tokenShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)*`)

// Scrub replaces tokens in text, since clients with bugs may put them anywhere.
func Scrub(text string) string { return tokenShape.ReplaceAllString(text, "(secret)") }

// maxErrorTextBytes is more than any error text of muster's own.
const maxErrorTextBytes = 1024

// BoundedText is [ErrorText] cut to 1 KiB, for errors that strangers can cause.
func BoundedText(err error) string {
	text := ErrorText(err)
	if len(text) <= maxErrorTextBytes {
		return text
	}
	return strings.ToValidUTF8(Cut(text, maxErrorTextBytes), "") + "…"
}

// ErrorText returns the text of err without tokens, "" for nil.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return Scrub(err.Error())
}

// Cut returns at most n bytes of text.
func Cut(text string, n int) string { return text[:min(len(text), n)] }
