package provisioner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/provisioner/operate"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// autosigned returns a fleet with an autosign command; dir is a directory for it.
func autosigned(t *testing.T, timeout time.Duration, script string) (f *testbed.Fleet, dir string) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "autosign")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ndir="+dir+"\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	f = testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.Waiting.Autosign.Command, c.Waiting.Autosign.Timeout = []string{path}, conffile.Span(timeout)
		c.Quotas.PerToken, c.Quotas.PerSource = 0, 0
	}})
	f.Allow("known*.example.net")
	return f, dir
}

// TestAutosign: exit status 0 admits, anything else leaves the node pending.
func TestAutosign(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f, _ := autosigned(t, time.Second, `
read first
[ "$first" = "-----BEGIN CERTIFICATE REQUEST-----" ] || exit 3
case "$1" in
web*) exit 0 ;;
prints*) echo '{"approve": false}'; echo no >&2; exit 0 ;;
no*) echo "rack 4 is not known"; echo "second line"; exit 1 ;;
garbage*) head -c 65536 /dev/urandom; exit 7 ;;
flood*) head -c 4000000 /dev/zero | tr '\0' x >&2; exit 1 ;;
drowns*) exec cat /dev/zero ;;
hang*) exec sleep 600 ;;
forks*) sleep 600 & exit 1 ;;
dies*) kill -9 $$ ;;
esac
exit 1
`)
	for _, name := range []string{"web1.example.net", "prints.example.net"} {
		n := f.Node(name)
		f.Apply(n, f.Enroll(n))
		if a := f.Record(name).Approval; a == nil || a.By != provisioner.AutosignBy {
			t.Errorf("%s: on record: %+v", name, a)
		}
	}
	var waits []*simnode.Node
	for _, name := range []string{"no", "garbage", "flood", "drowns", "hangs", "forks", "dies"} {
		n := f.Node(name + ".example.net")
		waits = append(waits, n)
		if code := f.Refused(n); code != wire.CodeApprovalPending {
			t.Errorf("%s: %s, want approval_pending", n.Identity, code)
		}
	}
	pending := thosePending(t, f, waits...)
	if cause := f.Cause("no.example.net"); !strings.HasSuffix(cause, "autosign: helper failed: exit status 1: rack 4 is not known") {
		t.Errorf("the event lacks what the command printed: %s", cause)
	}
	for _, k := range pending {
		if said := strings.Contains(strings.Join(k.Reasons, "\n"), "rack 4 is not known"); said != (k.Identity == "no.example.net") {
			t.Errorf("pending %s has the reasons %q", k.Identity, k.Reasons)
		}
	}
	for line := range strings.Lines(f.Log()) {
		if len(line) > 32<<10 {
			t.Errorf("a line of %d bytes in the log: %.200s", len(line), line)
		}
	}
	if _, err := f.Daemon().Orders().Keys.Approve(f.Context(), operate.Named("hangs.example.net", ""), 0,
		operator); err != nil {
		t.Fatal(err)
	}
	f.Enroll(waits[4])
	f.Check()
}
