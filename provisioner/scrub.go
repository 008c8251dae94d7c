package provisioner

import (
	"regexp"
	"strings"
)

// tokenShape matches a JWT, or what is left of one that was cut.
var tokenShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)*`)

// scrub returns text without anything that looks like a token. What a stranger
// sent is quoted where it is refused, and a client with a bug may have put its
// token into any member of a request.
func scrub(text string) string { return tokenShape.ReplaceAllString(text, "(secret)") }

// maxSaidBytes bounds what is said of why a stranger was refused; chosen, more than any reason of
// ours takes that quotes names of full length.
const maxSaidBytes = 1024

// causeOf is scrubbed for what strangers may have caused: whatever they sent, a line of the log
// and an event have some length.
func causeOf(err error) string {
	text := scrubbed(err)
	if len(text) <= maxSaidBytes {
		return text
	}
	return strings.ToValidUTF8(cut(text, maxSaidBytes), "") + "…"
}

// scrubbed is scrub for the text of an error; "" for none.
func scrubbed(err error) string {
	if err == nil {
		return ""
	}
	return scrub(err.Error())
}
