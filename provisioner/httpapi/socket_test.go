package httpapi_test

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner/httpapi"
)

// TestASocketThatIsDeletedIsMadeAgain deletes the socket of a provisioner that runs,
// twice: it is there again, for its owner only, and there is one listener still. Who is
// connected notices nothing.
func TestASocketThatIsDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	path := filepath.Join(f.Dir, "data", httpapi.SocketName)
	connected := client(f)
	for n := 1; n <= 2; n++ {
		if err := connected.Do(f.Context(), http.MethodGet, "/v1/signers", nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := connected.Do(f.Context(), http.MethodGet, "/v1/signers", nil, nil); err != nil {
			t.Errorf("over a connection from before: %v", err)
		}
		awaitSocket(t, path)
		info, err := os.Stat(path)
		if err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("socket: %v, %v", info, err)
		}
		if got := listeners(t, filepath.Dir(path)); got != 1 {
			t.Errorf("%d listeners, want 1", got)
		}
		if got := strings.Count(f.Log(), "control socket was gone, and is made again"); got != n {
			t.Errorf("said %d times, want %d", got, n)
		}
	}
	f.Stop()
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*control*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// TestASocketThatCannotBeMadeAgain has its directory be gone as well, for a while: that
// is said once.
func TestASocketThatCannotBeMadeAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	said := make(lines, 16) // of two that are expected
	path := filepath.Join(dir, httpapi.SocketName)
	serve(t, httpapi.Config{Socket: path, Log: slog.New(slog.NewTextHandler(said, nil))})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	said.next(t, "control socket is gone, and cannot be made again")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	awaitSocket(t, path)
	said.next(t, "control socket was gone, and is made again")
}

// TestWhatIsInTheSocketsPlaceStays puts a file of one's own there, also for the end.
func TestWhatIsInTheSocketsPlaceStays(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	path := filepath.Join(f.Dir, "data", httpapi.SocketName)
	own := filepath.Join(f.Dir, "own")
	if err := errors.Join(os.WriteFile(own, []byte("mine"), 0o600), os.Rename(own, path)); err != nil {
		t.Fatal(err)
	}
	f.Stop()
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("in its place there is %q, %v", b, err)
	}
}

// lines are those of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// next waits for the next line, which must have a text.
func (l lines) next(t *testing.T, text string) {
	t.Helper()
	select {
	case line := <-l:
		if !strings.Contains(line, text) {
			t.Errorf("the log says %s, want %s", line, text)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("nothing was said of: %s", text)
	}
}

// awaitSocket waits until somebody who comes now is answered.
func awaitSocket(t *testing.T, path string) {
	t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for {
		err := observed(httpapi.NewClient(path)).Do(t.Context(), http.MethodGet, "/v1/signers", nil, nil)
		if err == nil {
			return
		}
		if !errors.Is(err, httpapi.ErrNotServing) {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}

// listeners counts the Unix sockets that were made below a directory and are listened on.
func listeners(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Skip(err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		// Num RefCount Protocol Flags Type St Inode Path; the flag is __SO_ACCEPTCON.
		fields := strings.Fields(line)
		if len(fields) == 8 && fields[3] == "00010000" && strings.HasPrefix(fields[7], dir) {
			n++
		}
	}
	return n
}
