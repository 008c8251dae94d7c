package certificates_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/server/certificates"
)

// An action runs after files were saved, with their paths. While it fails the certificate is saved; after three failures
// it is stuck, which is reported; then it succeeds.
func TestAction(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.cfg.BackoffMax = 10 * time.Millisecond
	n.action("reload", `env >DIR/env; cat "$MUSTER_COMBINED_FILE" >/dev/null || exit 9
yes 123456789 | head -c 10000; echo not yet >&2; test -e DIR/ready || exit 3`)
	n.specify("web", web+"action: reload\n")
	n.start()
	s := n.await("web", "stuck", stuck)
	if s.State != certificates.Saved || s.Serial != n.checkFiles() || !strings.HasPrefix(s.Reason, `action "reload": exit status 3`) {
		t.Errorf("status = %+v", s)
	}
	if a := s.Action; a == nil || a.Name != "reload" || a.Exit != 3 || a.At.IsZero() || len(a.Output) > 4096 || len(a.Output) < 4000 ||
		!strings.HasSuffix(a.Output, "not yet") {
		t.Errorf("action = %+v", a)
	}
	await(t, func() bool {
		for _, r := range n.requests(wire.CertificateReport) {
			if r.Report.Stuck && r.Report.State == certificates.Saved {
				return true
			}
		}
		return false
	}, func() string { return "not reported" })
	n.write("ready", "")
	s = n.await("web", "current", in(certificates.Current))
	if s.Action.Exit != 0 {
		t.Errorf("action = %+v", s.Action)
	}
	for line := range strings.Lines(n.read("env")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch want := map[string]string{"MUSTER_CERTIFICATE": "web", "MUSTER_KEY_FILE": n.path("etc/tls/web.key"),
			"MUSTER_CERTIFICATE_FILE": n.path("etc/tls/web.crt"), "MUSTER_CHAIN_FILE": n.path("etc/tls/web-chain.pem"),
			"MUSTER_CA_FILE": n.path("srv/ca.pem"), "MUSTER_COMBINED_FILE": n.path("srv/web.pem"), "PWD": "/"}[name]; {
		case name == "PATH" || name == "SHLVL" || name == "_" || name == "OLDPWD":
		case value != want:
			t.Errorf("the action's environment has %s=%s, want %q", name, value, want)
		}
	}
	if n := len(n.requests(wire.CertificateIssue)); n != 1 {
		t.Errorf("asked for %d certificates, want one", n)
	}
}

// At its time limit an action ends with all that it started.
func TestActionThatHangs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.action("hang", "sleep 1000 & echo $! >DIR/child; wait")
	n.write("etc/actions.d/hang.yaml", "program: DIR/hang.sh\ntimeout: 1s\n")
	n.specify("web", web+"action: hang\n")
	n.start()
	s := n.await("web", "failed", func(s certificates.Status) bool { return s.Action != nil && s.Error != "" })
	if s.Error != `action "hang": not done within its time limit, 1s` || s.Action.Exit != -1 {
		t.Errorf("status = %+v, action = %+v", s, s.Action)
	}
	child := filepath.Join("/proc", strings.TrimSpace(n.read("child")), "cmdline")
	await(t, func() bool {
		b, _ := os.ReadFile(child) // "" of a zombie
		return !strings.Contains(string(b), "sleep")
	}, func() string { return "its child goes on" })
}

// Actions that hang keep other certificates and orders waiting for their time limit, and no longer.
func TestActionsThatHangBlockNoCertificates(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.action("hang", "echo >>DIR/hangs; sleep 1000")
	n.write("etc/actions.d/hang.yaml", "program: DIR/hang.sh\ntimeout: 1s\n")
	for i := range 2 {
		n.specify(fmt.Sprint("hang", i), simple(fmt.Sprintf("DIR/srv/hang%d.pem", i), "")+"action: hang\n")
	}
	m := n.start()
	await(t, func() bool { return n.exists("hangs") }, func() string { return "no action runs" })
	n.specify("web", web)
	first := n.await("web", "current", in(certificates.Current)).Serial
	if err := n.order(m, certificates.Order{Verb: certificates.Renew, Name: "web"}); err != nil {
		t.Fatal(err)
	}
	n.await("web", "renewed", func(s certificates.Status) bool { return s.State == certificates.Current && s.Serial != first })
	for i := range 2 {
		if s := n.status(fmt.Sprint("hang", i)); s.NotAfter.IsZero() {
			t.Errorf("status = %+v", s)
		}
	}
}
