package events

import (
	"regexp"
	"strings"
)

// tokenShape matches a JWT, also a truncated one.
var tokenShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)*`)

// Scrub replaces tokens in text, since clients with bugs put them into any member.
func Scrub(text string) string { return tokenShape.ReplaceAllString(text, "(secret)") }

// maxErrorTextBytes exceeds all of our own reasons.
const maxErrorTextBytes = 1024

// BoundedText is [ErrorText] cut short, for errors that strangers can cause.
func BoundedText(err error) string {
	text := ErrorText(err)
	if len(text) <= maxErrorTextBytes {
		return text
	}
	return strings.ToValidUTF8(Cut(text, maxErrorTextBytes), "") + "…"
}

// ErrorText is [Scrub] for the text of an error; "" for nil.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return Scrub(err.Error())
}

// Cut returns at most n bytes of text.
func Cut(text string, n int) string { return text[:min(len(text), n)] }
