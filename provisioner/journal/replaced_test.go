package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/provisioner"
	"muster/provisioner/journal"
)

// replaced is a journal with an entry of each kind that the tests look at, and what was in its
// file before the last of them.
func replaced(t *testing.T) (path string, j *journal.Journal, older []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "journal")
	j = open(t, path)
	if err := errors.Join(j.Begin(journal.From{Installation: "i", At: noon}), j.AppendClaims(claim(1)), j.Append(entry("a"))); err != nil {
		t.Fatal(err)
	}
	older = contents(t, path)
	if err := j.AppendClaims(claim(2)); err != nil {
		t.Fatal(err)
	}
	return path, j, older
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// put makes another file and gives it the name, as an editor does.
func put(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// inFile returns what a journal that is opened anew would have.
func inFile(t *testing.T, path string) (claims []provisioner.Revision, revoked []string) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(copied, contents(t, path), 0o600); err != nil {
		t.Fatal(err)
	}
	j := open(t, copied)
	return places(t, j, 0), ids(t, j)
}

// TestAWholeCopyInItsPlaceIsGoneOnWith copies the journal and gives the copy its name, as an
// editor or rsync does: what is written from then on is in the file that a restore
// will find, and that is nobody else's.
func TestAWholeCopyInItsPlaceIsGoneOnWith(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{"whole": "", "made while we wrote": "{"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, j, _ := replaced(t)
			for i, write := range []func() error{
				func() error { return j.AppendClaims(claim(3)) },
				func() error { return j.Append(entry("b")) },
				func() error { return j.AppendTakeover(&provisioner.Takeover{Identity: "web1", Key: "k", At: noon}) },
			} {
				put(t, path, append(contents(t, path), more...))
				if err := write(); err != nil {
					t.Fatalf("write %d: %v", i, err)
				}
			}
			claims, revoked := inFile(t, path)
			if !cmp.Equal(claims, []provisioner.Revision{1, 2, 3}) || !cmp.Equal(revoked, []string{"a", "b"}) {
				t.Errorf("in its place: claims %v, revocations %v", claims, revoked)
			}
			if !strings.Contains(string(contents(t, path)), "takeover") {
				t.Error("a name that changed hands is not in the file in its place")
			}
			if other, err := journal.Open(path); !errors.Is(err, journal.ErrInUse) {
				_ = other.Close()
				t.Errorf("a second process opens it: %v, want %v", err, journal.ErrInUse)
			}
		})
	}
}

// TestAnotherFileInItsPlaceTakesNothing has something else in the journal's place: what cannot
// be found by its name is not written, until that is the journal again.
func TestAnotherFileInItsPlaceTakesNothing(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(t *testing.T, path string, older []byte){
		"nothing":         func(*testing.T, string, []byte) {},
		"an older copy":   put,
		"an empty one":    func(t *testing.T, path string, _ []byte) { t.Helper(); put(t, path, nil) },
		"another journal": func(t *testing.T, path string, _ []byte) { t.Helper(); put(t, path, another(t)) },
		"a copy that others have written to": func(t *testing.T, path string, _ []byte) {
			t.Helper()
			put(t, path, contents(t, path+".away"))
			other := open(t, path)
			if err := errors.Join(other.AppendClaims(claim(3)), other.Close()); err != nil {
				t.Fatal(err)
			}
			// Ours may begin in the same way.
			put(t, path, append(contents(t, path), "x"...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, j, older := replaced(t)
			whole := contents(t, path)
			if err := os.Rename(path, path+".away"); err != nil {
				t.Fatal(err)
			}
			other(t, path, older)
			there, missing := os.ReadFile(path)
			for range 2 {
				for _, err := range []error{j.AppendClaims(claim(3)), j.Append(entry("b")), j.Mark(journal.Backup{ID: "b", At: noon})} {
					if err == nil || !strings.Contains(err.Error(), "removed or replaced") {
						t.Errorf("written, and in no journal: %v", err)
					}
				}
			}
			through(t, j, 2)
			if after, err := os.ReadFile(path); !cmp.Equal(after, there) || (err == nil) != (missing == nil) {
				t.Errorf("in its place is %q, %v, want what was there", after, err)
			}
			if got := contents(t, path+".away"); !cmp.Equal(got, whole) {
				t.Errorf("what nobody was told of is in the file: %q", got[len(whole):])
			}
			if err := os.Rename(path+".away", path); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(j.AppendClaims(claim(3)), j.Append(entry("b"))); err != nil {
				t.Fatal(err)
			}
			claims, revoked := inFile(t, path)
			if !cmp.Equal(claims, []provisioner.Revision{1, 2, 3}) || !cmp.Equal(revoked, []string{"a", "b"}) {
				t.Errorf("once it is back: claims %v, revocations %v", claims, revoked)
			}
		})
	}
}

// another returns a longer journal.
func another(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path)
	if err := j.Begin(journal.From{Installation: "other", At: noon}); err != nil {
		t.Fatal(err)
	}
	for at := range provisioner.Revision(9) {
		if err := j.AppendClaims(claim(at + 1)); err != nil {
			t.Fatal(err)
		}
	}
	return contents(t, path)
}
