package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAFailedStoreEndsTheProcess takes the store directory or the journal away from a provisioner: it ends with status
// 1 and says why, and the next start writes the journal again. A damaged stream keeps it from starting, with status 78.
func TestAFailedStoreEndsTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	muster(t, dir, "provisioner", "init", "prov", "--host", "broker.example.net", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+freePort(t))
	const config = "prov/provisioner.yaml"
	run := func() *process { return start(t, dir, "provisioner", "run", "--config", config) }
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
	journal := filepath.Join(dir, "prov/data/revocations.journal")
	for _, lose := range []struct {
		do   func() error
		says string
	}{
		{func() error { return os.Remove(journal) }, "revocations.journal was replaced since the start"},
		{func() error { return os.Rename(journal, journal+".1") }, "revocations.journal was replaced since the start"},
		{func() error { return os.Truncate(journal, 0) }, "has 0 bytes, want"},
		{func() error { return os.Truncate(journal, 200) }, "has 200 bytes, want"},
	} {
		p := run()
		p.waitFor("provisioner is serving")
		muster(t, dir, "token", "revoke", strings.Repeat("ab", 16), "--why", "test", "--config", config)
		whole, err := os.ReadFile(journal)
		if err == nil {
			err = lose.do()
		}
		if err != nil {
			t.Fatal(err)
		}
		ends(p, 1, lose.says)
		p = run()
		p.waitFor("journal lacked revocations of the store, they are written again")
		p.waitFor("provisioner is serving")
		if again, err := os.ReadFile(journal); string(again) != string(whole) {
			t.Errorf("the journal is %q (%v), want %q", again, err, whole)
		}
		p.stop()
	}
	if err := os.Remove(filepath.Join(store, "jetstream/MUSTER/streams/MUSTER_CLAIMS/meta.inf")); err != nil {
		t.Fatal(err)
	}
	ends(run(), 78, "could not be recovered")
}
