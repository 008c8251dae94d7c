package helper

import (
	"errors"
	"fmt"
	"strings"
)

// ErrCommand means that a command line cannot be split.
var ErrCommand = errors.New("malformed command")

// Split splits a command line, as provisioner.yaml has it, into the program
// and its arguments. Blanks separate them. Between single quotes everything
// stands for itself; between double quotes a backslash takes the meaning
// from a double quote or a backslash; outside of quotes it does so from any
// character. Nothing else has a meaning: there is no shell, so variables and
// wildcards stay as they are. The error wraps [ErrCommand].
func Split(line string) ([]string, error) {
	var args []string
	var arg strings.Builder
	inArg := false
	quote := rune(0) // the open one, or 0
	escaped := false // the character before was a backslash that counts
	for _, c := range line {
		switch {
		case c == 0:
			return nil, fmt.Errorf("%w: a NUL character", ErrCommand)
		case escaped:
			if quote == '"' && c != '"' && c != '\\' {
				arg.WriteRune('\\')
			}
			arg.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, inArg = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				arg.WriteRune(c)
			}
		case c == '\'' || c == '"':
			quote, inArg = c, true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if inArg {
				args = append(args, arg.String())
				arg.Reset()
			}
			inArg = false
		default:
			arg.WriteRune(c)
			inArg = true
		}
	}
	switch {
	case quote != 0:
		return nil, fmt.Errorf("%w: a %q that is not closed", ErrCommand, quote)
	case escaped:
		return nil, fmt.Errorf("%w: ends with a backslash", ErrCommand)
	case inArg:
		args = append(args, arg.String())
	}
	if len(args) == 0 || args[0] == "" {
		return nil, fmt.Errorf("%w: empty", ErrCommand)
	}
	return args, nil
}
