package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// ErrNoTerminal means that a secret was to be asked for and nobody is there
// to answer. The caller names the other ways of giving it.
var ErrNoTerminal = errors.New("standard input is not a terminal")

// AskSecret writes the prompt to out and reads a line from in without showing
// it. It returns [ErrNoTerminal] if in is no terminal. When ctx is done, the
// terminal is put back as it was and the cause returned; the read itself
// cannot be called off, so the process should end then.
func AskSecret(ctx context.Context, in *os.File, out io.Writer, prompt string) ([]byte, error) {
	if !IsTerminal(in) {
		return nil, ErrNoTerminal
	}
	fd := int(in.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	if _, err := fmt.Fprint(out, prompt); err != nil {
		return nil, err
	}
	var text []byte
	answered := make(chan error, 1) // the reader may end after a cancellation
	go func() {
		var err error
		text, err = term.ReadPassword(fd)
		answered <- err
	}()
	select {
	case <-ctx.Done():
		_, err := fmt.Fprintln(out)
		return nil, errors.Join(context.Cause(ctx), term.Restore(fd, state), err)
	case err := <-answered:
		if err != nil {
			return nil, fmt.Errorf("terminal: %w", err)
		}
		_, err = fmt.Fprintln(out) // the line end was not shown either
		return text, err
	}
}

// AskSecretTwice asks until two answers in a row are equal and not empty,
// three times at most.
func AskSecretTwice(ctx context.Context, in *os.File, out io.Writer, prompt string) ([]byte, error) {
	for range 3 {
		first, err := AskSecret(ctx, in, out, prompt)
		if err != nil {
			return nil, err
		}
		second, err := AskSecret(ctx, in, out, "Once more: ")
		if err != nil {
			return nil, err
		}
		if len(first) > 0 && bytes.Equal(first, second) {
			return first, nil
		}
		if _, err := fmt.Fprintln(out, "The two differ or are empty."); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("no two equal answers in three tries")
}
