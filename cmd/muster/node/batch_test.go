package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/internal/wire"
)

// TestBatchGoesOnWhereItStopped stops at the limit on failures, is killed while it writes the name of a machine
// down, and resumes.
func TestBatchGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kept")
	b := batch{size: 2, pause: 1, maxFailures: 1, file: file}
	w := &work{ID: wire.NewID(), Verb: "restart", Why: "a test"}
	for _, name := range strings.Fields("a b c d e f") {
		w.Nodes = append(w.Nodes, wire.Identity(name+".example.net"))
	}
	var mu sync.Mutex
	told := map[wire.Identity]int{}
	broken := []wire.Identity{"c.example.net", "d.example.net"}
	one := func(_ context.Context, id wire.Identity) error {
		mu.Lock()
		defer mu.Unlock()
		told[id]++
		if slices.Contains(broken, id) {
			return errors.New("away")
		}
		return nil
	}
	r, err := b.run(t.Context(), w, one)
	if err == nil || r.Done != 2 || len(r.Failed) != 2 || r.Left != 2 {
		t.Fatalf("stopped with %+v, %v; want 2 done, 2 failed, 2 left", r, err)
	}
	kept, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(kept, "c.example.ne"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readWork(file, "shutdown"); err == nil {
		t.Error("the file of one verb was read for another")
	}
	broken = nil
	rest, err := readWork(file, "restart")
	if err != nil {
		t.Fatal(err)
	}
	if rest.Why != "a test" || fmt.Sprint(rest.Nodes) != "[c.example.net d.example.net e.example.net f.example.net]" {
		t.Errorf("left %v because of %q", rest.Nodes, rest.Why)
	}
	if r, err = b.run(t.Context(), rest, one); err != nil || r.Done != 4 {
		t.Fatalf("resumed: %+v, %v", r, err)
	}
	if told["a.example.net"] != 1 || told["c.example.net"] != 2 || told["f.example.net"] != 1 {
		t.Errorf("told %v", told)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

func TestMissingMachinesAreCounted(t *testing.T) {
	t.Parallel()
	failed := make([]failure, 2)
	for want, r := range map[string]*result{
		"1 machine failed":                       {Failed: failed[:1]},
		"2 machines failed and 1 was not tried":  {Failed: failed, Left: 1},
		"1 machine failed and 20 were not tried": {Failed: failed[:1], Left: 20},
		"1 machine was not tried":                {Left: 1},
	} {
		if got := r.missing(); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
