package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"muster/internal/testbed"
	"muster/internal/testproc"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// TestTheClusterExample runs examples/cluster at a small size.
func TestTheClusterExample(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "../../examples/cluster/run.sh")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has processes to end
	cmd.Env = append(os.Environ(), "NODES=6", "PROVISIONERS=2", "PORT=4220", "MUSTER="+binary(t), "NATS_SERVER="+testproc.NATSServer(t),
		fmt.Sprintf("ADDRESS=127.%d.%d.1", 1+rand.IntN(250), 1+rand.IntN(250)), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run.sh: %v\n%s", err, out)
	}
	for _, want := range []string{"6 nodes are in the fleet", "revoked"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("run.sh does not print %q:\n%s", want, out)
		}
	}
}

// binary returns a path under which this test's binary is muster.
func binary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), program)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAKilledProvisionerOfTwo kills one of two provisioners with SIGKILL while
// nodes enroll: the other one goes on, what nodes were told is on record, and
// the killed one comes back.
func TestAKilledProvisionerOfTwo(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	const nodes = 60
	f := testbed.New(t, testbed.Options{Servers: 1})
	config := strings.NewReplacer("name: broker.fleet.test", "name: second.fleet.test", "data_dir: data", "data_dir: data-2").Replace(f.Read("provisioner.yaml"))
	f.Write("second.yaml", config)
	if err := os.Mkdir(filepath.Join(f.Dir, "data-2"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func() *process {
		p := start(t, f.Dir, "provisioner", "run", "--config", "second.yaml")
		p.waitFor("provisioner is serving")
		return p
	}
	second := run()
	w := &wave{url: f.URL(), token: f.Token(f.Seal), told: map[string]string{}, enrolled: make(chan struct{}, 100*nodes)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all sync.WaitGroup
	for i := range nodes {
		all.Go(func() { w.node(ctx, t, fmt.Sprintf("web%d.example.net", i)) })
	}
	for range nodes / 4 {
		<-w.enrolled
	}
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-second.done
	second = run()
	all.Wait()
	for identity, serial := range w.told {
		r, _, err := f.Daemon().Store().Record(ctx, wire.Identity(identity))
		if err != nil || r == nil || r.State != provisioner.StateProvisioned || r.Current.Serial != serial || r.Next != nil {
			t.Errorf("%s was told certificate %s, on record is %+v, %v", identity, serial, r, err)
		}
	}
	if len(w.told) != nodes {
		t.Errorf("%d of %d nodes were told a certificate", len(w.told), nodes)
	}
	for _, dir := range []string{"data", "data-2"} {
		client := httpapi.NewClient(filepath.Join(f.Dir, dir, httpapi.SocketName))
		f.Eventually(dir+" lists every node as it is on record", func() bool {
			var p fleet.Page
			if err := client.Do(ctx, http.MethodGet, "/v1/nodes", nil, &p); err != nil || len(p.Nodes) != nodes {
				return false
			}
			return !slices.ContainsFunc(p.Nodes, func(n fleet.Node) bool {
				return n.State != provisioner.StateProvisioned || n.Serial != w.told[string(n.Identity)]
			})
		})
	}
	second.stop()
}

// TestBrokerRun is the walk of an operator without a nats-server: init, a broker
// alone, a provisioner beside it, and an agent that comes over TLS before it has
// a certificate. The broker's certificate is renewed while it runs.
func TestBrokerRun(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	address := net.JoinHostPort("127.0.0.1", freePort(t))
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--trust-first-use",
		"--broker-address", "127.0.0.1", "--broker-urls", "tls://"+address, "--replicas", "1")
	muster(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml", "--validate")
	args := []string{"--config", "prov/provisioner.yaml", "--host", "n1", "--dir", "n1", "--listen", address}
	printed := muster(t, dir, append([]string{"broker", "config"}, args...)...)
	muster(t, dir, append([]string{"broker", "config", "--write"}, args...)...)
	if written, err := os.ReadFile(filepath.Join(dir, "n1/nats-server.conf")); err != nil || string(written) != printed {
		t.Errorf("what is written (%v) is not what is printed:\n%s\n%s", err, written, printed)
	}
	for _, name := range []string{"n1/nats-server.conf", "n1/key.pem", "prov/cluster/issuer", "prov/cluster/xkey", "prov/cluster/provisioner", "prov/cluster/system", "prov/cluster/routes"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", name, info, err)
		}
	}
	for _, secret := range []string{"cluster/issuer", "cluster/xkey", "cluster/provisioner", "cluster/system"} {
		b, err := os.ReadFile(filepath.Join(dir, "prov", secret))
		if err != nil || strings.Contains(printed, strings.TrimSpace(string(b))) {
			t.Errorf("the configuration holds the secret of %s (%v)", secret, err)
		}
	}
	if out, err := command(t, append([]string{"broker", "config", "--write"}, args...)...).CombinedOutput(); err == nil {
		t.Errorf("the files are overwritten:\n%s", out)
	}

	other := command(t, "broker", "certificate", filepath.Join(dir, "n1"), "--config", filepath.Join(dir, "prov/provisioner.yaml"), "--host", "n2")
	if out, err := other.CombinedOutput(); err == nil || !strings.Contains(string(out), "is the certificate of n1, not of n2") {
		t.Errorf("the certificate of another server is replaced: %v\n%s", err, out)
	}

	nobodys := command(t, "broker", "certificate", t.TempDir(), "--config", filepath.Join(dir, "prov/provisioner.yaml"), "--host", "n1")
	if out, err := nobodys.CombinedOutput(); err == nil || !strings.Contains(string(out), "key.pem: no such file or directory: want the directory that `muster broker config --write` made\n") {
		t.Errorf("the certificate in an empty directory is replaced: %v\n%s", err, out)
	}

	server := start(t, dir, "broker", "run", "n1/nats-server.conf")
	server.waitFor("broker is running")
	provisioner := start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")
	muster(t, dir, "jwt", "provisioning.jwt", "prov/signer-key.pem", "--no-insecure", "--token", "toomanysecrets", "--default", "--urls", address, "--ca", "prov/ca/root.pem")
	agent := start(t, dir, "server", "run", "--token-file", "provisioning.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	agent.waitFor("mode=normal")
	agent.stop()

	before, err := os.ReadFile(filepath.Join(dir, "n1/certificate.pem"))
	if err != nil {
		t.Fatal(err)
	}
	muster(t, dir, "broker", "certificate", "n1", "--config", "prov/provisioner.yaml", "--host", "n1")
	after, err := os.ReadFile(filepath.Join(dir, "n1/certificate.pem"))
	if err != nil || string(after) == string(before) {
		t.Errorf("the certificate is not renewed: %v", err)
	}
	// nats-server 2.15.3 reads its options without their lock for a direct read
	// (getDirectRequest), which the race detector tells: so nothing reads meanwhile.
	provisioner.stop()
	if err := server.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	server.waitFor("configuration reloaded")
	provisioner = start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")
	agent = start(t, dir, "server", "run", "--token-file", "provisioning.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	agent.waitFor("mode=normal")
	agent.stop()
	provisioner.stop()
	// As nats-server's own unit has it stopped.
	if err := server.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	server.ends()
	if out := server.output(); !strings.Contains(out, "broker stopping") {
		t.Errorf("it does not say that it stops:\n%s", out)
	}
}
