package provisioner_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestAutosign has a command by Puppet's contract decide: exit status 0 lets a
// machine in, anything else and too long a time leave it waiting.
func TestAutosign(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "autosign")
	const text = `#!/bin/sh
read first
[ "$first" = "-----BEGIN CERTIFICATE REQUEST-----" ] || exit 3
case "$1" in
web*) exit 0 ;;
slow*) exec sleep 600 ;;
esac
exit 1
`
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.Waiting.Autosign.Command, c.Waiting.Autosign.Timeout = script, time.Second
	}})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	if a := f.Record("web1.example.net").Approval; a == nil || a.By != provisioner.AutosignBy {
		t.Errorf("on record: %+v", a)
	}
	no, slow := f.Node("db1.example.net"), f.Node("slow1.example.net")
	for _, n := range []string{no.Identity, slow.Identity} {
		if code := f.Refused(f.Node(n)); code != wire.CodeApprovalPending {
			t.Errorf("%s: %s, want approval_pending", n, code)
		}
	}
	f.Check()
}
