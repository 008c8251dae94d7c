package certificates_test

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"muster/server/certificates"
)

// killer ends the manager's work after a step, for good, as a process does that is killed there.
type killer struct {
	mu    sync.Mutex
	steps []string
	at    int           // how many steps to take; -1: all
	died  chan struct{} // closed then
	end   chan struct{} // closed at the end of the test
}

func (k *killer) step(name string) {
	k.mu.Lock()
	k.steps = append(k.steps, name)
	now := len(k.steps) == k.at
	k.mu.Unlock()
	if now {
		close(k.died)
		<-k.end
		runtime.Goexit()
	}
}

// The process dies after every step of a first certificate, of a renewal, and of mending files, each with an action. The
// next one ends with files that fit, loses none, and has one certificate for each key.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	phases := map[string]func(*node, *testing.T){
		"first": func(n *node, _ *testing.T) { n.due = true },
		"renewal": func(n *node, t *testing.T) {
			n.complete(t)
			n.pass(life * 76 / 100)
			n.due = true
		},
		"mending": func(n *node, t *testing.T) {
			n.complete(t)
			n.write("etc/tls/web.crt", "")
			n.write("srv/web.pem", "")
		},
	}
	for name, prepare := range phases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := dies(t, prepare, -1)
			if len(all) < 8 || !slices.Contains(all, "replaced key") && name != "mending" ||
				!slices.Contains(all, "action ended") {
				t.Fatalf("steps = %q", all)
			}
			for at := range all {
				dies(t, prepare, at+1)
			}
		})
	}
}

// complete runs a manager until the certificate is current.
func (n *node) complete(t *testing.T) {
	t.Helper()
	if !n.exists("etc/certificates.d/web.yaml") {
		n.specify("web", web)
	}
	m := n.start()
	n.await("web", "current", in(certificates.Current))
	m.stop()
}

// dies runs a life, in which the process dies after so many steps, and checks its end.
func dies(t *testing.T, prepare func(*node, *testing.T), at int) []string {
	t.Helper()
	n := newNode(t)
	n.action("touch", "echo $MUSTER_CERTIFICATE $MUSTER_KEY_FILE >>DIR/acted")
	n.specify("web", web+"action: touch\n")
	prepare(n, t)
	_ = os.Remove(n.path("acted"))
	want := len(n.given)
	k := &killer{at: at, died: make(chan struct{}), end: make(chan struct{})}
	n.cfg.Step = k.step
	m := n.start()
	if at < 0 {
		n.awaitWhole()
		m.stop()
	} else {
		t.Cleanup(func() { close(k.end) })
		await(t, func() bool {
			select {
			case <-k.died:
				return true
			default:
				return n.isWhole(n.status("web")) // this life had fewer steps
			}
		}, func() string { return "neither dead nor whole" })
		former, stopped := m, make(chan struct{})
		go func() { former.stop(); close(stopped) }() // not before the end of the test if it died
		select {
		case <-k.died:
		case <-stopped:
		}
		n.cfg.Step = func(string) {}
		m = n.start()
		n.awaitWhole()
		m.stop()
	}
	if got, s := n.checkFiles(), n.status("web"); got != s.Serial {
		t.Errorf("files have serial %s, the status %s", got, s.Serial)
	}
	n.checkTidy()
	if n.due {
		want++
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.given) != want {
		t.Errorf("after %q: %d keys were certified, want %d", k.steps, len(n.given), want)
	}
	return k.steps
}

// awaitWhole waits until the certificate is current and the action has run.
func (n *node) awaitWhole() {
	n.tb.Helper()
	n.await("web", "whole", n.isWhole)
}

func (n *node) isWhole(certificates.Status) bool {
	if !n.exists("acted") || n.read("etc/tls/web.crt") == "" || n.read("srv/web.pem") == "" {
		return false
	}
	s := n.status("web") // read last: it was current before
	return s.State == certificates.Current && n.clock().Before(s.RenewAt)
}
