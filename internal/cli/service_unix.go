//go:build unix

package cli

import (
	"context"
	"io"
	"os"
)

func asService(ctx context.Context, _ string, run func(context.Context) error) error { return run(ctx) }

// LogWriter returns where a daemon logs.
func LogWriter() io.Writer { return os.Stderr }
