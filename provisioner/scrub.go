package provisioner

import "regexp"

// tokenShape matches a JWT, or what is left of one that was cut.
var tokenShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)*`)

// scrub returns text without anything that looks like a token. What a stranger
// sent is quoted where it is refused, and a client with a bug may have put its
// token into any member of a request.
func scrub(text string) string { return tokenShape.ReplaceAllString(text, "(secret)") }

// scrubbed is scrub for the text of an error; "" for none.
func scrubbed(err error) string {
	if err == nil {
		return ""
	}
	return scrub(err.Error())
}
