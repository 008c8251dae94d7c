package wire

import (
	"regexp"
	"strings"
	"unicode"
)

// A node that cannot use what it was offered says so in the message with which it would
// have confirmed it: version 1 has no other that every node may send, signs and has
// answered. In the place of the digest stand a mark, the digest and why. A provisioner
// that does not know of it takes that for a digest which it has not offered, and answers
// [CodeNotIssued].

const unusableMark = "unusable:"

// MaxUnusableBytes bounds why a node cannot use an offer; chosen, the errors of
// nodes are a line.
const MaxUnusableBytes = 512

// quoted matches what errors show of a text that is not their own.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?`)

// Unusable returns what stands for the digest in an [Applied] that says why the offer with
// that digest cannot be used. Nothing that is quoted in why is in it: that may be a value of
// the configuration, of which nobody keeps any.
func Unusable(digest, why string) string {
	return unusableMark + digest + ":" + oneLine(quoted.ReplaceAllString(why, `"…"`))
}

// Unusable reports whether a says that an offer cannot be used, and returns the digest of
// that, and why, which is the node's word: one line of [MaxUnusableBytes] at most.
func (a *Applied) Unusable() (digest, why string, is bool) {
	rest, is := strings.CutPrefix(a.Digest, unusableMark)
	if !is {
		return "", "", false
	}
	digest, why, _ = strings.Cut(rest, ":")
	return digest, oneLine(why), true
}

// oneLine makes one short line of a text.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }), " ")
	if len(text) > MaxUnusableBytes {
		text = text[:MaxUnusableBytes]
	}
	return strings.ToValidUTF8(text, "") // half a character at its end
}
