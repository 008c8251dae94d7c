package journal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"muster/provisioner"
	"muster/provisioner/journal"
)

// entry returns a good entry.
func entry(id string) *provisioner.Revocation {
	return &provisioner.Revocation{
		Schema: provisioner.RevocationSchema, ID: id, Kind: provisioner.RevokedToken, At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		By: "operator", Why: "lost\n\"stolen\"", Token: "00112233445566778899aabbccddeeff",
	}
}

func open(t *testing.T, path string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func ids(t *testing.T, j *journal.Journal) []string {
	t.Helper()
	entries, err := j.Entries()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestWhatWasAppendedIsReadBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j := open(t, path)
	want := []*provisioner.Revocation{entry("a"), entry("b"), entry("c")}
	if err := errors.Join(j.Append(want[0]), j.Append(want[1], want[0], want[1], want[2]), j.Append(want[2]), j.Append()); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	j = open(t, path)
	got, err := j.Entries()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries, each once (-want +got):\n%s", diff)
	}
	if err := j.Append(entry("b"), entry("d")); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, j); !cmp.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("after opening again: %v", got)
	}
	if err := journal.Check(path); err != nil {
		t.Errorf("Check = %v", err)
	}
}

// TestAnUnfinishedEntryIsCutOff cuts the file at every byte of its last line, as
// a crash does.
func TestAnUnfinishedEntryIsCutOff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j := open(t, path)
	if err := j.Append(entry("a"), entry("b")); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(whole, '\n') + 1
	for cut := first; cut <= len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := journal.Open(path)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want := []string{"a"}
		if cut == len(whole) {
			want = []string{"a", "b"}
		}
		if got := ids(t, j); !cmp.Equal(got, want) || cut < len(whole) && j.Cut() != int64(cut-first) {
			t.Errorf("cut at %d: entries %v, %d bytes cut off", cut, got, j.Cut())
		}
		// The next one begins a line of its own.
		if err := errors.Join(j.Append(entry("c")), j.Close()); err != nil {
			t.Fatal(err)
		}
		j, err = journal.Open(path)
		if err != nil {
			t.Fatalf("cut at %d, after another entry: %v", cut, err)
		}
		if got := ids(t, j); !cmp.Equal(got, append(want, "c")) {
			t.Errorf("cut at %d, after another entry: %v", cut, got)
		}
		_ = j.Close()
	}
}

// TestDamageIsNamed expects an error with file and line for whatever is no
// entry, and the file as it was.
func TestDamageIsNamed(t *testing.T) {
	t.Parallel()
	good := func(t *testing.T) []string {
		path := filepath.Join(t.TempDir(), "j")
		j := open(t, path)
		if err := j.Append(entry("a"), entry("b"), entry("c")); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.SplitAfter(string(b), "\n")
	}
	for name, damage := range map[string]func(string) string{
		"half a line":    func(s string) string { return s[:len(s)/2] + "\n" },
		"joined lines":   func(s string) string { return strings.TrimSuffix(s, "\n") + s },
		"zeros":          func(s string) string { return strings.Repeat("\x00", len(s)-1) + "\n" },
		"an empty line":  func(string) string { return "\n" },
		"another schema": func(s string) string { return strings.Replace(s, `"schema":1`, `"schema":2`, 1) },
		"another member": func(s string) string { return strings.Replace(s, `"schema":1`, `"schema":1,"until":1`, 1) },
		"another kind":   func(s string) string { return strings.Replace(s, `"kind":"token"`, `"kind":"site"`, 1) },
		"another token":  func(s string) string { return strings.Replace(s, `"token":"00`, `"token":"0x`, 1) },
		"no id":          func(s string) string { return strings.Replace(s, `"id":"b"`, `"id":""`, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := good(t)
			lines[1] = damage(lines[1])
			path := filepath.Join(t.TempDir(), "revocations.journal")
			want := strings.Join(lines, "")
			if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
			for what, err := range map[string]error{"Open": func() error { _, err := journal.Open(path); return err }(), "Check": journal.Check(path)} {
				if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "line 2") {
					t.Errorf("%s = %v, want the file and line 2", what, err)
				}
				// Who goes back to an older version is not to remove what it does not know.
				if later := json.Valid([]byte(lines[1])); err != nil && strings.Contains(err.Error(), "a later version of muster") != later {
					t.Errorf("%s = %v, want a later version of muster in it: %t", what, err, later)
				}
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
}

func TestAJournalIsItsOwners(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	if err := journal.Check(path); err != nil {
		t.Errorf("Check of none = %v", err)
	}
	j := open(t, path)
	if _, err := journal.Open(path); !errors.Is(err, journal.ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(entry("a")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("append to a closed one: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Open": func() error { _, err := journal.Open(path); return err }(), "Check": journal.Check(path)} {
		if err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) {
			t.Errorf("%s of a readable one = %v", what, err)
		}
	}
	if _, err := journal.Open(filepath.Join(t.TempDir(), "no", "such")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	if _, err := journal.Open(t.TempDir()); err == nil {
		t.Error("a directory was opened")
	}
}

// TestAFullDiskLeavesWholeLines lets a write stop in the middle of a line, by a
// limit on the size of files: nothing more is written then, and when it is opened again, with
// room, it has whole lines.
func TestAFullDiskLeavesWholeLines(t *testing.T) {
	if os.Getenv("JOURNAL_FULL") == "" {
		// The limit is the process's, so this is one of its own.
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAFullDiskLeavesWholeLines$", "-test.v")
		cmd.Env = append(os.Environ(), "JOURNAL_FULL=1")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestAFullDisk")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j := open(t, path)
	if err := j.Append(entry("a")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	full := unix.Rlimit{Cur: uint64(info.Size() + 20), Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &full); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(entry("b")); !errors.Is(err, unix.EFBIG) || !errors.Is(err, journal.ErrFailed) {
		t.Errorf("append to a full disk = %v", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, j); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("after the full disk: %v", got)
	}
	if err := j.Append(entry("c")); !errors.Is(err, journal.ErrFailed) {
		t.Errorf("append after a failed write = %v, want %v", err, journal.ErrFailed)
	}
	_ = j.Close()
	j = open(t, path)
	if err := j.Append(entry("b"), entry("c")); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	if got := ids(t, open(t, path)); !cmp.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("after all: %v", got)
	}
}

func TestManyWriters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j := open(t, path)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 10 {
				// Every entry comes from two of them.
				if err := j.Append(entry(fmt.Sprint(i/2, "-", n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	_ = j.Close()
	if got := ids(t, open(t, path)); len(got) != 40 {
		t.Errorf("%d entries, want 40", len(got))
	}
}

// TestAJournalThatIsTakenAwayIsNobodys has many open a journal and take
// it away, as a restore that fails takes away an empty one: whoever has it open has
// the file of that name.
func TestAJournalThatIsTakenAwayIsNobodys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				j, err := journal.Open(path)
				if err != nil {
					continue
				}
				if err := os.Remove(path); err != nil {
					t.Error(err)
				}
				if err := j.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
