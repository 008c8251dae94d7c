package policies

import "regexp"

var (
	// builtinError: built-in functions quote their operands in many ways.
	builtinError = regexp.MustCompile(`(?s)(eval_builtin_error: [\w.]+): .*`)

	// quoted is a value in any other error.
	quoted = regexp.MustCompile("(?s)\"(?:[^\"\\\\]|\\\\.)*\"?|`[^`]*`?")
)

// redact removes values from an evaluation's error: they may be secret facts. File, line and function stay.
func redact(text string) string {
	text = builtinError.ReplaceAllString(text, "$1 does not take its operands")
	return quoted.ReplaceAllString(text, `"..."`)
}
