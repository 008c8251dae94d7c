package cli_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"muster/internal/cli"
)

// TestInputEndsWithItsContext reads all of an input, and one to which nobody writes.
func TestInputEndsWithItsContext(t *testing.T) {
	t.Parallel()
	const text = "web1.example.net\nweb2.example.net\n"
	if b, err := io.ReadAll(cli.Input(t.Context(), strings.NewReader(text))); err != nil || string(b) != text {
		t.Errorf("read %q, %v", b, err)
	}
	silent, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = w.Close(), silent.Close() })
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if b, err := io.ReadAll(cli.Input(ctx, silent)); !errors.Is(err, context.Canceled) || len(b) > 0 {
		t.Errorf("read %q, %v, want that it was interrupted", b, err)
	}
}

// TestOpenEndsWithItsContext opens a file, and a pipe to which nobody writes.
func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(file, []byte("text"), 0o600), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	f, err := cli.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(f); err != nil || string(b) != "text" {
		t.Errorf("read %q, %v", b, err)
	}
	_ = f.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if f, err := cli.Open(ctx, pipe); !errors.Is(err, context.Canceled) || f != nil {
		t.Errorf("Open = %v, %v, want that it was interrupted", f, err)
	}
	w, err := os.OpenFile(pipe, os.O_RDWR, 0) // so that the wait ends
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
}
