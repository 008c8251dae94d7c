package chaos_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testproc"
)

// A deployment is what nodes enroll at: processes that can be killed, and a store that can be read without them.
type deployment struct {
	t         *testing.T
	dir       string   // of the whole run
	data      string   // data_dir
	addresses []string // of the brokers; one for an embedded broker
	cluster   *cluster // nil: none

	prefix []string // runs the provisioner, for example in its own network
	clock  *clock   // its own
	p      *process // nil or ended: down
}

// newEmbedded sets up a provisioner with its own broker and store in dir/prov, without starting it.
func newEmbedded(t *testing.T, dir, host string) *deployment {
	t.Helper()
	address := net.JoinHostPort(host, testproc.FreePort(t))
	d := &deployment{
		t:         t,
		dir:       dir,
		data:      filepath.Join(dir, "prov/data"),
		addresses: []string{address},
		clock:     newClock(t, filepath.Join(dir, "provisioner.clock")),
	}
	d.muster("provisioner", "init", "prov", "--host", "broker.chaos.test", "--trust-domain", "chaos.test",
		"--broker-name", "localhost", "--broker-address", host, "--listen", address, "--trust-first-use")
	// A wave has one address.
	d.edit("prov/provisioner.yaml", "# per_source: 20000", "per_source: 0")
	return d
}

// muster runs a verb to its end and returns what it printed.
func (d *deployment) muster(args ...string) string {
	d.t.Helper()
	cmd := exec.Command(program(d.t, "muster"), args...)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), d.clock.env())
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// edit changes a file of the set-up.
func (d *deployment) edit(name, old, replacement string) {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	b, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(b), old) {
		d.t.Fatalf("%s: %v, want %q in it", path, err, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), old, replacement, 1)), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// token signs a token for the broker at this address.
func (d *deployment) token(name, address string, args ...string) string {
	d.t.Helper()
	d.muster(append([]string{"jwt", name + ".jwt", "prov/signer-key.pem", "--token", "chaos", "--default", "--urls",
		address}, args...)...)
	b, err := os.ReadFile(filepath.Join(d.dir, name+".jwt"))
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// address is the address in tokens.
func (d *deployment) address() string { return strings.Join(d.addresses, ",") }

// url is the URL for clients.
func (d *deployment) url() string { return urlOf(d.address()) }

// urlOf returns the URL of addresses with commas between them.
func urlOf(addresses string) string {
	return "nats://" + strings.ReplaceAll(addresses, ",", ",nats://")
}

// start starts the provisioner without waiting for it.
func (d *deployment) start() {
	d.t.Helper()
	args := append(append([]string{}, d.prefix...), program(d.t, "muster"), "provisioner", "run", "--config",
		"prov/provisioner.yaml")
	d.p = supervise(d.t, d.dir, "provisioner", []string{d.clock.env()}, args...)
}

// serve starts the provisioner and waits until it serves.
func (d *deployment) serve() {
	d.t.Helper()
	d.start()
	d.p.waitFor("provisioner is serving")
}

// stop stops the provisioners.
func (d *deployment) stop() {
	d.t.Helper()
	d.p.stop()
	if d.cluster != nil {
		d.cluster.second.p.stop()
	}
}

// read returns the messages in the store of a stopped deployment.
func (d *deployment) read() map[string][]stored {
	d.t.Helper()
	if d.cluster != nil {
		return d.cluster.read(d)
	}
	return readStore(d.t, d.storeDir(), d.dir)
}

// storeDir is where the broker of the provisioner keeps its streams.
func (d *deployment) storeDir() string { return filepath.Join(d.data, "broker") }
