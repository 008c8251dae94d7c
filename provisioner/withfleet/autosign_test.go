package provisioner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// autosigned returns a fleet with a command that approves; dir is where it may
// leave something.
func autosigned(t *testing.T, timeout time.Duration, script string) (f *testbed.Fleet, dir string) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "autosign")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ndir="+dir+"\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return testbed.New(t, testbed.Options{DefaultPolicy: true, AllowList: "allow:\n  - pattern: known*.example.net\n", Edit: func(c *daemon.Config) {
		c.Waiting.Autosign.Command, c.Waiting.Autosign.Timeout = path, timeout
		c.Quotas.PerToken, c.Quotas.PerSource = 0, 0
	}}), dir
}

// TestAutosign has a command by Puppet's contract decide: exit status 0 lets a
// machine in whatever it prints, and anything else leaves it waiting, listed for
// a person, who can still approve it.
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
	waiting(t, f, waits...)
	for line := range strings.Lines(f.Log()) {
		if len(line) > 32<<10 {
			t.Errorf("a line of %d bytes in the log: %.200s", len(line), line)
		}
	}
	if _, err := f.Daemon().Operator().ApproveNode(f.Context(), "hangs.example.net", "", 0, operator); err != nil {
		t.Fatal(err)
	}
	f.Enroll(waits[4])
	f.Check()
}

// TestAutosignThatHangsKeepsNobodyElseWaiting has more machines than there are
// workers wait for a command that hangs: one that needs no approval gets in
// meanwhile, most are told to wait without being asked about, and when the
// command works again all of them get in.
func TestAutosignThatHangsKeepsNobodyElseWaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	const machines = 320 // there are 256 workers
	f, dir := autosigned(t, 10*time.Second, `
cat >/dev/null
while [ -e "$dir/hang" ]; do sleep 0.1; done
`)
	if err := os.WriteFile(filepath.Join(dir, "hang"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	token := f.Token(nil)
	type answer struct {
		n     *simnode.Node
		reply *wire.Reply
		err   error
	}
	answers := make(chan answer, machines)
	ask := func(n *simnode.Node) {
		nc, err := simnode.Dial(f.URL(), n.Token)
		if err != nil {
			answers <- answer{n, nil, err}
			return
		}
		defer nc.Close()
		reply, err := simnode.Enroll(f.Context(), nc, n.Request())
		answers <- answer{n, reply, err}
	}
	for i := range machines {
		go ask(node(t, fmt.Sprintf("web%d.example.net", i), token))
	}
	var again []*simnode.Node
	collect := func(n int) {
		t.Helper()
		for n > 0 {
			a := <-answers
			switch {
			case a.err != nil:
				t.Fatalf("%s: %v", a.n.Identity, a.err)
			case a.reply.Refusal != nil && a.reply.Refusal.Code == wire.CodeApprovalPending:
				again = append(again, a.n)
				n--
			case f.Stood(a.n, a.reply):
				go ask(a.n)
			case a.reply.Refusal != nil:
				t.Fatalf("%s: %+v: %s", a.n.Identity, a.reply.Refusal, f.Cause(a.n.Identity))
			default:
				t.Fatalf("%s got in while the command hangs", a.n.Identity)
			}
		}
	}
	const asked = 64 // at most: four for each of the 16 that run at once
	collect(machines - asked)
	f.Enroll(f.Node("known1.example.net"))
	notAsked := func() (n int) {
		for _, e := range eventsOf(f, provisioner.EventRefused) {
			if strings.Contains(e.Cause, "not asked, it is asked about 64 nodes already") {
				n++
			}
		}
		return n
	}
	// On a machine with much else to do they come one by one, and the command is given up meanwhile:
	// then others come in the place of those that were told to wait.
	for try := 1; notAsked() < machines-256; try++ {
		if try == 5 {
			t.Fatalf("the command was not asked about %d machines, want %d or more: it holds all workers", notAsked(), machines-256)
		}
		for i := range again {
			go ask(node(t, fmt.Sprintf("web%d-%d.example.net", try, i), token))
		}
		n := len(again)
		again = nil
		collect(n)
	}
	if err := os.Remove(filepath.Join(dir, "hang")); err != nil {
		t.Fatal(err)
	}
	in, pending := 0, asked // whose turn comes now
	for in < machines {
		for _, n := range again {
			go ask(n)
		}
		pending += len(again)
		again = nil
		for range pending {
			a := <-answers
			if a.err != nil {
				t.Fatalf("%s: %v", a.n.Identity, a.err)
			}
			if a.reply.Refusal != nil {
				again = append(again, a.n)
				continue
			}
			in++
		}
		pending = 0
	}
	f.Check()
}
