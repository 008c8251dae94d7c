// Package withfleet_test kills agents with service certificates, beside a real provisioner.
package withfleet_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/rogpeppe/go-internal/testscript"

	"muster/internal/cli"
	"muster/internal/testbed"
	"muster/internal/testproc"
	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server/certificates"
	"muster/server/servercmd"
)

const program = "muster-server"

// TestMain runs the agent as cmd/muster-server does.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){program: func() {
		p := cli.Program{Name: program, Add: func(app *kingpin.Application, all cli.Verbs) { servercmd.AddRun(app, all) }}
		os.Exit(p.Run(os.Args[1:])) //nolint:forbidigo // this is its main
	}})
}

// Agents are killed at random, while each round asks for another certificate. In the end the files of all nodes fit, no
// certificate is lost, and the provisioner has certified no key twice.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	const nodes = 4
	kills := 5
	if os.Getenv("MUSTER_CI_INSTALL") != "" {
		kills = 50
	}
	testproc.Needs(t)
	f := testbed.New(t, testbed.Options{})
	var all sync.WaitGroup
	for i := range nodes {
		n := &node{t: t, f: f, id: fmt.Sprintf("web%d.example.net", i), serials: make(map[string]string)}
		n.Agent = f.Agent(n.id, f.Token(nil))
		f.WaitProvisioned(n.Agent)
		n.Stop()
		all.Go(func() { n.run(kills) })
	}
	all.Wait()
	f.Check()
}

type node struct {
	*testbed.Agent
	t       *testing.T
	f       *testbed.Fleet
	id      string
	serials map[string]string // by key hash
	round   int
}

func (n *node) path(name string) string { return filepath.Join(n.Dir, name) }

func (n *node) run(kills int) {
	for _, dir := range []string{"certificates.d", "actions.d", "../tls"} { // the rest of this directory is muster's own
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			n.t.Error(err)
			return
		}
	}
	n.write("reload.sh", "#!/bin/sh\nopenssl x509 -noout -subject -in $MUSTER_CERTIFICATE_FILE\n", 0o755)
	n.write("actions.d/reload.yaml", "program: "+n.path("reload.sh")+"\n", 0o600)
	states := make(map[string]int)
	for n.round < kills {
		n.round++
		n.specify()
		cmd, log := n.start()
		if cmd == nil {
			return
		}
		if n.round%2 == 0 { // into the work, not the start
			before := n.read("certificates/web.json")
			n.f.Eventually("work of "+n.id, func() bool { return n.read("certificates/web.json") != before })
		}
		<-time.After(time.Duration(rand.IntN(400)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			n.t.Error(err, log)
		}
		_ = cmd.Wait() // it was killed
		states[n.status().State]++
		n.look(false)
	}
	n.t.Logf("%s: states at the kills: %v", n.id, states)
	cmd, log := n.start()
	if cmd == nil {
		return
	}
	n.f.Eventually(n.id+" is current", n.current)
	_ = cmd.Process.Signal(os.Interrupt) // it saves its state first
	_ = cmd.Wait()
	n.look(true)
	if strings.Contains(log.String(), "PRIVATE KEY") {
		n.t.Error("a private key was logged")
	}
}

// specify wants another name than before.
func (n *node) specify() {
	n.write("certificates.d/web.yaml", fmt.Sprintf(`dns_names: ["%s", "{{.identity}}"]
files:
  key: {path: %[2]s/web.key}
  certificate: {path: %[2]s/web.crt}
  chain: {path: %[2]s/chain.pem}
  ca: {path: %[2]s/ca.pem}
  combined: {path: %[2]s/web.pem}
action: reload
`, n.name(), n.path("../tls")), 0o600)
}

func (n *node) name() string { return fmt.Sprintf("round%d.%s", n.round, n.id) }

func (n *node) start() (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(n.t.Context(), os.Args[0])
	cmd.Args = []string{program, "run", "--config", n.path("server.conf"), "--ssl-dir", n.Dir, "--token-file", n.Token,
		"--identity", n.id}
	log := &bytes.Buffer{}
	cmd.Stderr = log
	if err := testproc.Start(cmd); err != nil {
		n.t.Error(err)
		return nil, nil
	}
	return cmd, log
}

func (n *node) status() certificates.Status {
	all, err := certificates.New(certificates.Config{State: n.path("certificates"), Dir: n.Dir}).Statuses()
	if err != nil || len(all) != 1 {
		n.t.Errorf("%s: %d statuses: %v", n.id, len(all), err)
		return certificates.Status{}
	}
	return all[0]
}

// current reports whether the last specification's certificate is current.
func (n *node) current() bool {
	s := n.status()
	return s.State == certificates.Current && len(s.Names) > 0 && s.Names[0] == n.name()
}

// look checks what the provisioner has on record, and that the combined file is whole; at the end also that all files
// belong together.
func (n *node) look(end bool) {
	_, entry, ok := n.f.Daemon().Services().Index().Get(wire.Identity(n.id), "web")
	if ok && entry.Current != nil {
		if other := n.serials[entry.Current.KeyHash]; other != "" && other != entry.Current.Serial {
			n.t.Errorf("%s: one key has certificates %s and %s", n.id, other, entry.Current.Serial)
		}
		n.serials[entry.Current.KeyHash] = entry.Current.Serial
	}
	combined := []byte(n.read("../tls/web.pem"))
	if len(combined) == 0 && !end {
		return
	}
	pair, err := tls.X509KeyPair(combined, combined)
	if err != nil {
		n.t.Errorf("%s: combined file: %v", n.id, err)
		return
	}
	if !end {
		return
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		n.t.Error(err)
		return
	}
	if serial := ca.Serial(leaf); !ok || serial != entry.Current.Serial {
		n.t.Errorf("%s: the files have serial %s, the record has another one", n.id, serial)
	}
	if _, err := tls.LoadX509KeyPair(n.path("../tls/web.crt"), n.path("../tls/web.key")); err != nil {
		n.t.Errorf("%s: %v", n.id, err)
	}
	if n.read("../tls/web.crt")+n.read("../tls/chain.pem")+n.read("../tls/web.key") != string(combined) {
		n.t.Errorf("%s: the files are not of one certificate", n.id)
	}
	roots, _ := pem.Decode([]byte(n.read("../tls/ca.pem")))
	if roots == nil || !slices.Contains(leaf.DNSNames, n.id) {
		n.t.Errorf("%s: names %q, authority %q", n.id, leaf.DNSNames, n.read("../tls/ca.pem"))
	}
	for _, dir := range []string{"../tls", "certificates"} {
		left, _ := filepath.Glob(filepath.Join(n.path(dir), "*new")) // also with a leading dot
		hidden, _ := filepath.Glob(filepath.Join(n.path(dir), ".*new"))
		if left = append(left, hidden...); len(left) > 0 {
			n.t.Errorf("%s: left: %q", n.id, left)
		}
	}
}

func (n *node) read(name string) string {
	b, _ := os.ReadFile(n.path(name)) // "" if it is missing
	return string(b)
}

func (n *node) write(name, text string, mode os.FileMode) {
	temp := n.path("written")
	err := os.WriteFile(temp, []byte(text), mode)
	if err == nil {
		err = os.Rename(temp, n.path(name))
	}
	if err != nil {
		n.t.Error(err)
	}
}
