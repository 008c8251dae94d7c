package policies

import "regexp"

var (
	// builtinError is the error of a built-in function: what comes after its name
	// quotes operands, each function in its own way.
	builtinError = regexp.MustCompile(`(?s)(eval_builtin_error: [\w.]+): .*`)

	// quoted is a value in any other error.
	quoted = regexp.MustCompile("(?s)\"(?:[^\"\\\\]|\\\\.)*\"?|`[^`]*`?")
)

// redact returns the text of an evaluation's error without the values in it:
// they may be facts, which are nobody's business but the policy's. File, line
// and function stay.
func redact(text string) string {
	text = builtinError.ReplaceAllString(text, "$1 does not take its operands")
	return quoted.ReplaceAllString(text, `"..."`)
}
