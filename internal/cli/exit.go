package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exit statuses, the same for every command of this repository.
const (
	ExitDone   = 0 // the verb did what was asked
	ExitFailed = 1 // the verb ran and failed
	ExitUsage  = 2 // the command line makes no sense; nothing was done

	// ExitConfig is EX_CONFIG of sysexits.h: a service failed, and to start it again does not help.
	ExitConfig = 78
)

// noRestart is the error of a service that is not to be started again; see [NoRestart].
type noRestart struct{ error }

// Unwrap returns the error.
func (e noRestart) Unwrap() error { return e.error }

// NoRestart returns err, of a service that another start does not help: [Report] returns [ExitConfig]
// for it. Of nil it returns nil.
func NoRestart(err error) error {
	if err == nil {
		return nil
	}
	return noRestart{err}
}

// A UsageError says what is wrong with a command line.
type UsageError struct {
	Mistakes error  // one a line
	Help     string // command whose --help explains, such as "muster jwt"
}

// Error implements error: one mistake per line.
func (e *UsageError) Error() string { return e.Mistakes.Error() }

// Unwrap returns the mistakes.
func (e *UsageError) Unwrap() error { return e.Mistakes }

// Report writes err to w, one line per line of it with the program's name in
// front, and returns the exit status: [ExitUsage] for a [UsageError],
// [ExitDone] for nil, [ExitConfig] for one of [NoRestart], else [ExitFailed].
func Report(w io.Writer, program string, err error) int {
	if err == nil {
		return ExitDone
	}
	for line := range strings.Lines(err.Error()) {
		Say(w, program, "%s", strings.TrimRight(line, "\n"))
	}
	var usage *UsageError
	var fixed noRestart
	switch {
	case errors.As(err, &fixed):
		return ExitConfig
	case !errors.As(err, &usage):
		return ExitFailed
	}
	if usage.Help != "" {
		Say(w, program, "try `%s --help`", usage.Help)
	}
	return ExitUsage
}

// Say writes one line to w with the program's name in front, stripped of
// control characters. That it could not be written is nowhere left to be said.
func Say(w io.Writer, program, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "%s: %s\n", program, Printable(fmt.Sprintf(format, args...)))
}
