package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAFailedStoreEndsTheProcess takes the store directory away from a provisioner: it ends with status 1
// and says why. A damaged stream keeps it from starting, with status 78.
func TestAFailedStoreEndsTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	muster(t, dir, "provisioner", "init", "prov", "--host", "broker.example.net", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+freePort(t))
	run := func() *process { return start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml") }
	ends := func(p *process, status int, says string) {
		t.Helper()
		select {
		case <-p.done:
		case <-time.After(patience):
			t.Fatalf("it does not end:\n%s", p.output())
		}
		if got := p.cmd.ProcessState.ExitCode(); got != status || !strings.Contains(p.output(), says) {
			t.Errorf("ended with %d, want %d and %q", got, status, says)
		}
	}
	store := filepath.Join(dir, "prov/data/broker")
	p := run()
	p.waitFor("provisioner is serving")
	if err := os.Rename(store, store+".away"); err != nil {
		t.Fatal(err)
	}
	ends(p, 1, "was replaced since the start: the provisioner stops, so that it is restarted")
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(store+".away", store); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(store, "jetstream/MUSTER/streams/MUSTER_CLAIMS/meta.inf")); err != nil {
		t.Fatal(err)
	}
	ends(run(), 78, "could not be recovered")
}
