package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/wire"
)

// FuzzProgress reads any file as one of --progress, goes on with it, and reads it again:
// what was done by then is done, and no machine is that was not meant.
func FuzzProgress(f *testing.F) {
	f.Add([]byte(`{"id":"c1","verb":"retire","why":"gone","nodes":["web1.example.net","web2.example.net"],"seen":{"web1.example.net":{"owned_since":"2026-03-01T12:00:00Z"}}}` + "\nweb1.example.net\nweb2.ex"))
	f.Add([]byte(`{"id":"c1","verb":"retire","nodes":["web1.example.net ` + strings.Repeat("a", 64) + `"]}` + "\n"))
	f.Add([]byte(`{"id":"c1","verb":"retire","nodes":["web1.example.net a\nweb2.example.net"]}`))
	f.Add([]byte("{}\n#\n\n"))
	path := filepath.Join(f.TempDir(), "progress")
	f.Fuzz(func(t *testing.T, b []byte) {
		// Cut and written again, ext4 would flush it to disk each time.
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := readProgress(path, "retire")
		if err != nil {
			return
		}
		for _, target := range p.Nodes {
			if id, err := wire.ParseIdentity(string(target.Node)); err != nil || id != target.Node {
				t.Fatalf("a machine of the name %q: %v", target.Node, err)
			}
		}
		left := p.left()
		if len(left) == 0 {
			return
		}
		keep, err := p.open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := keep(left[0]); err != nil {
			t.Fatal(err)
		}
		again, err := readProgress(path, "retire")
		if err != nil {
			t.Fatalf("what we went on with is refused: %v", err)
		}
		want := slices.DeleteFunc(slices.Clone(left), func(n target) bool { return n == left[0] })
		if got := again.left(); !slices.Equal(got, want) {
			t.Fatalf("after %q there are %q left of %q", left[0], got, left)
		}
	})
}
