package wire

import (
	"regexp"
	"strings"
	"unicode"
)

// A node that cannot use an offer sends an [Applied] that says so. Its Digest is then unusablePrefix, the offer's
// digest and the reason.

const unusablePrefix = "unusable:"

// MaxUnusableBytes bounds the reason.
const MaxUnusableBytes = 512

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?`)

// Unusable returns the Digest of an [Applied] that reports an unusable offer. Quoted text is removed, because it
// may be a value of the configuration.
func Unusable(digest, why string) string {
	return unusablePrefix + digest + ":" + oneLine(quoted.ReplaceAllString(why, `"…"`))
}

// Unusable returns the offer's digest and the node's reason in one line, if a reports an unusable offer.
func (a *Applied) Unusable() (digest, why string, is bool) {
	rest, is := strings.CutPrefix(a.Digest, unusablePrefix)
	if !is {
		return "", "", false
	}
	digest, why, _ = strings.Cut(rest, ":")
	return digest, oneLine(why), true
}

func oneLine(text string) string {
	blank := func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }
	text = strings.Join(strings.FieldsFunc(text, blank), " ")
	if len(text) > MaxUnusableBytes {
		text = text[:MaxUnusableBytes]
	}
	return strings.ToValidUTF8(text, "") // the cut may split a character
}
