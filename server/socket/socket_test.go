package socket_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/server/socket"
)

type question struct {
	Text string `json:"text"`
}

// serve answers each question with its text in capitals until the end of the test.
func serve(t *testing.T, path string) {
	t.Helper()
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		socket.Serve(ctx, l, func(_ context.Context, b json.RawMessage) any {
			return question{strings.ToUpper(string(b))}
		})
	}()
}

func TestASocketAnswersItsUserAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent", "s")
	serve(t, path)
	for at, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %o", at, info, err, want)
		}
	}
	var answer question
	if err := socket.Ask(t.Context(), path, question{"hello"}, &answer); err != nil || answer.Text != `{"TEXT":"HELLO"}` {
		t.Errorf("answer %q, %v", answer.Text, err)
	}
}

// A request without an end, or one that is too long, gets no answer and stops no other.
func TestASocketIgnoresWhatIsNoRequest(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path)
	silent, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var answer question
	err = socket.Ask(t.Context(), path, question{strings.Repeat("x", 2<<20)}, &answer)
	if !errors.Is(err, socket.ErrNoAgent) {
		t.Errorf("a request of 2 MiB: %v", err)
	}
	if err := socket.Ask(t.Context(), path, question{"a"}, &answer); err != nil {
		t.Error(err)
	}
}

func TestListenTakesOnlyADeadSocketsPlace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	if err := socket.Ask(t.Context(), path, question{"a"}, &question{}); !errors.Is(err, socket.ErrNoAgent) {
		t.Errorf("nobody listens: %v", err)
	}
	serve(t, path)
	if _, err := socket.Listen(path); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("a second agent: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := socket.Listen(file); err == nil {
		t.Error("a file was replaced")
	}
}
