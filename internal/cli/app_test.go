package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
)

func TestInt(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int{"0": 0, "200": 200, "-1": -1, "+3": 3, "007": 7} {
		if got, err := parseNodes(in); err != nil || got != want {
			t.Errorf("--nodes %s is %d, %v, want %d", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"abc":                   `--nodes is "abc", want a whole number`,
		"1.5":                   `--nodes is "1.5", want a whole number`,
		"1e3":                   `--nodes is "1e3", want a whole number`,
		"0x10":                  `--nodes is "0x10", want a whole number`,
		"99999999999999999999":  `--nodes is "99999999999999999999", want a whole number`,
		"-99999999999999999999": `--nodes is "-99999999999999999999", want a whole number`,
		"1\x1b[2J":              `--nodes is "1\x1b[2J", want a whole number`,
	} {
		if got, err := parseNodes(in); err == nil || err.Error() != want {
			t.Errorf("--nodes %q is %d, error %v, want %s", in, got, err, want)
		}
	}
}

// parseNodes returns what a flag makes of a value.
func parseNodes(value string) (int, error) {
	app := kingpin.New("muster", "").Terminate(nil).Writer(io.Discard)
	var n int
	cli.Int(app.Flag("nodes", "How many.").Default("200"), &n)
	_, err := app.Parse([]string{"--nodes=" + value})
	return n, err
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	cause := errors.New("interrupt signal received")
	done, cancel := context.WithCancelCause(t.Context())
	cancel(canceled{cause})
	for name, tt := range map[string]struct {
		ctx  context.Context
		err  error
		want string
	}{
		"nothing":     {done, nil, "<nil>"},
		"cause":       {done, fmt.Errorf("key.pem: %w", context.Cause(done)), "interrupted"},
		"plain":       {done, fmt.Errorf("enroll: %w", context.Canceled), "interrupted"},
		"and more":    {done, errors.Join(fmt.Errorf("a: %w", context.Cause(done)), errors.New("no disk")), "interrupted\nno disk"},
		"another":     {done, errors.New("no disk"), "no disk"},
		"not stopped": {t.Context(), fmt.Errorf("a: %w", context.Canceled), "a: context canceled"},
	} {
		if got := fmt.Sprint(cli.Interrupted(tt.ctx, tt.err)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, strings.TrimSpace(got), tt.want)
		}
	}
}

// canceled is a cause as of signal.NotifyContext.
type canceled struct{ error }

func (canceled) Is(target error) bool { return target == context.Canceled }
