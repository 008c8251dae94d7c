package events

import (
	"regexp"
	"strings"
)

// tokenShape matches a JWT, also a truncated one.
var tokenShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)*`)

// Scrub replaces tokens in text: clients with bugs put them into any member of a request.
func Scrub(text string) string { return tokenShape.ReplaceAllString(text, "(secret)") }

// maxErrorTextBytes is more than any of our reasons with names of full length.
const maxErrorTextBytes = 1024

// BoundedText is [ErrorText] with at most [maxErrorTextBytes], for errors that strangers can cause.
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
