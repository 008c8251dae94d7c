package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// ErrNoTerminal means that a secret was to be asked for and nobody is there
// to answer. The caller names the other ways of giving it.
var ErrNoTerminal = errors.New("standard input is not a terminal")

// maxSecretBytes bounds a secret from a file: chosen, far beyond any that a
// person or a program makes.
const maxSecretBytes = 4096

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
	type answer struct {
		text []byte
		err  error
	}
	answers := make(chan answer, 1) // so that the reader can end after a cancellation
	go func() {
		text, err := term.ReadPassword(fd)
		answers <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		_, err := fmt.Fprintln(out)
		return nil, errors.Join(context.Cause(ctx), term.Restore(fd, state), err)
	case a := <-answers:
		if a.err != nil {
			return nil, fmt.Errorf("terminal: %w", a.err)
		}
		if _, err := fmt.Fprintln(out); err != nil { // the line end was not shown either
			return nil, err
		}
		return a.text, nil
	}
}

// WarnReadable writes a warning to w, with the program's name in front, if the
// file of a secret is open to others than its owner: any permission of its
// group or of everybody. It says nothing about pipes and devices, nor about a
// file that is not there; reading it will.
func WarnReadable(w io.Writer, program, path string) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0 {
		return
	}
	Say(w, program, "warning: %s holds a secret, and mode %04o opens it to others than its owner; close it with: chmod 600 %s",
		path, info.Mode().Perm(), shellWord(path))
}

// shellWord writes a path so that a shell takes it for one word and chmod for
// no option.
func shellWord(path string) string {
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	const safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+,:@%="
	if strings.Trim(path, safe) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
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

// ReadSecretFile returns the only line of the file, without its end. It may be
// a pipe, such as /dev/fd/3.
func ReadSecretFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxSecretBytes {
		return nil, fmt.Errorf("%s: secret of more than %d bytes", path, maxSecretBytes)
	}
	b = bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	switch {
	case len(b) == 0:
		return nil, fmt.Errorf("%s: empty, want a secret on one line", path)
	case bytes.ContainsAny(b, "\r\n"):
		return nil, fmt.Errorf("%s: several lines, want a secret on one line", path)
	}
	return b, nil
}
