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

// ErrNoTerminal means that a secret is needed and there is no terminal to ask on. The caller adds
// the other ways to give the secret.
var ErrNoTerminal = errors.New("standard input is not a terminal")

// AskSecret writes the prompt to out and reads a line from in without echo. It returns [ErrNoTerminal] if in is no
// terminal. When ctx is done, it restores the terminal and returns the cause; the read goes on, so the process should
// end.
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
	answered := make(chan error, 1) // buffered: after a cancellation the answer has no receiver
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
		_, err = fmt.Fprintln(out) // the terminal has not shown the line end
		return text, err
	}
}

// AskSecretTwice asks up to three times until two answers in a row are equal and not empty.
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
		if _, err := fmt.Fprintln(out, "The two answers differ or are empty."); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("no two equal answers in three tries")
}
