package policies

import "regexp"

var (
	// builtinError is an error of a built-in function, which may quote its operands in many ways.
	builtinError = regexp.MustCompile(`(?s)(eval_builtin_error: [\w.]+): .*`)

	// quoted is a value in any other error.
	quoted = regexp.MustCompile("(?s)\"(?:[^\"\\\\]|\\\\.)*\"?|`[^`]*`?")
)

// redact removes values, which may be secret facts, from an evaluation's error. File, line and function stay.
func redact(text string) string {
	text = builtinError.ReplaceAllString(text, "$1 does not take its operands")
	return quoted.ReplaceAllString(text, `"..."`)
}
