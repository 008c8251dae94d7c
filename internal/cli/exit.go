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
	ExitUsage  = 2 // the command line is wrong; nothing was done

	// ExitConfig is EX_CONFIG of sysexits.h: a service failed, and a restart does not help.
	ExitConfig = 78
)

type noRestart struct{ error }

func (e noRestart) Unwrap() error { return e.error }

// NoRestart marks the error of a service that a restart does not help: [Report] returns [ExitConfig] for it. NoRestart
// of nil is nil.
func NoRestart(err error) error {
	if err == nil {
		return nil
	}
	return noRestart{err}
}

// A UsageError has the mistakes in a command line.
type UsageError struct {
	Mistakes error  // one a line
	Help     string // command with the right --help, such as "muster jwt"
}

func (e *UsageError) Error() string { return e.Mistakes.Error() }

func (e *UsageError) Unwrap() error { return e.Mistakes }

// Report writes each line of err to w after the program's name, and returns the exit status: [ExitDone] for nil,
// [ExitUsage] for a [UsageError], [ExitConfig] for an error of [NoRestart], else [ExitFailed].
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

// Say writes one [Printable] line to w after the program's name. It ignores a failed write: no stream is left to
// report it.
func Say(w io.Writer, program, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "%s: %s\n", program, Printable(fmt.Sprintf(format, args...)))
}
