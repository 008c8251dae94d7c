package socket_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"muster/internal/testproc"
)

// Another user gets no answer, even if the permissions of a socket and its directory let that user connect.
func TestASocketIgnoresOtherUsers(t *testing.T) {
	t.Parallel()
	testproc.NeedsRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	serve(t, path)
	err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.Chmod(path, 0o666))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(uid uintptr) (string, error) {
		type result struct {
			text []byte
			err  error
		}
		done := make(chan result)
		go func() {
			runtime.LockOSThread() // this thread ends with its user
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid); errno != 0 {
				done <- result{err: errno}
				return
			}
			conn, err := net.Dial("unix", path)
			if err != nil {
				done <- result{err: err}
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "{}\n") // a connection that is closed early may be broken
			text, _ := io.ReadAll(conn)
			done <- result{text: text}
		}()
		r := <-done
		return string(r.text), r.err
	}
	if text, err := ask(0); err != nil || text == "" {
		t.Errorf("root gets %q, %v", text, err)
	}
	if text, err := ask(65534); err != nil || text != "" {
		t.Errorf("another user gets %q, %v", text, err)
	}
}
