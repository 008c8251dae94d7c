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

type withStatus struct {
	error
	status int
}

func (e withStatus) Unwrap() error { return e.error }

// WithStatus has [Report] return status for err. WithStatus of nil is nil.
func WithStatus(err error, status int) error {
	if err == nil {
		return nil
	}
	return withStatus{err, status}
}

// NoRestart is [WithStatus] of [ExitConfig]: a restart of the service does not help.
func NoRestart(err error) error { return WithStatus(err, ExitConfig) }

// A UsageError has the mistakes in a command line.
type UsageError struct {
	Mistakes error  // one a line
	Help     string // command with the right --help, such as "muster jwt"
}

func (e *UsageError) Error() string { return e.Mistakes.Error() }

func (e *UsageError) Unwrap() error { return e.Mistakes }

// Report writes each line of err to w after the program's name, and returns the exit status: [ExitDone] for nil,
// [ExitUsage] for a [UsageError], the status of [WithStatus], else [ExitFailed].
func Report(w io.Writer, program string, err error) int {
	if err == nil {
		return ExitDone
	}
	for line := range strings.Lines(err.Error()) {
		Say(w, program, "%s", strings.TrimRight(line, "\n"))
	}
	var usage *UsageError
	var fixed withStatus
	switch {
	case errors.As(err, &fixed):
		return fixed.status
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
