package cli_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

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
