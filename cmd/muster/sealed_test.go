package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestSealedFromTokenToMachine is the walk with processes in sealed mode: as
// init sets it up, and after the seal key has changed.
func TestSealedFromTokenToMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+port, "--trust-first-use")
	sign := func(file, seal string) {
		muster(t, dir, "jwt", file, "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port, "--default",
			"--ca", "prov/ca/root.pem", "--seal", seal)
	}
	sign("provisioning.jwt", "prov/seal.pub")
	provisioner := start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")
	args := func(node, token string) []string {
		return []string{"--token-file", token, "--ssl-dir", node, "--config", node + "/server.conf", "--identity", node + ".example.net"}
	}
	before, _ := output(t, dir, append([]string{"server", "doctor"}, args("web1", "provisioning.jwt")...)...)
	if !strings.Contains(before, "admits this node with the sealed token") {
		t.Errorf("doctor before:\n%s", before)
	}
	agent := start(t, dir, append([]string{"server", "run"}, args("web1", "provisioning.jwt")...)...)
	agent.waitFor("connected to the fleet")
	after := muster(t, dir, append([]string{"server", "doctor"}, args("web1", "provisioning.jwt")...)...)
	if strings.Contains(after, "fail  ") {
		t.Errorf("doctor after:\n%s", after)
	}
	provisioner.stop()

	// The key is changed for another, made by openssl.
	openssl(t, dir, "genpkey", "-algorithm", "X25519", "-out", "prov/seal-key-2.pem")
	openssl(t, dir, "pkey", "-in", "prov/seal-key-2.pem", "-pubout", "-out", "prov/seal-2.pem")
	edit(t, filepath.Join(dir, "prov/provisioner.yaml"), "- seal-key.pem", "- seal-key-2.pem")
	sign("second.jwt", "prov/seal-2.pem")
	provisioner = start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")
	late := start(t, dir, append([]string{"server", "run"}, args("web2", "provisioning.jwt")...)...)
	provisioner.waitFor("code=sealed_invalid .*sealed to an unknown key")
	late.waitFor("does not have the token's seal key")
	late.stop()
	second := start(t, dir, append([]string{"server", "run"}, args("web3", "second.jwt")...)...)
	second.waitFor("connected to the fleet")
	for _, p := range []*process{agent, second, provisioner} {
		p.stop()
	}
	noSecrets(t, agent, late, second, provisioner)
}

// output runs a verb to its end and returns its standard output, whatever its
// exit status.
func output(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := command(t, args...)
	cmd.Dir = dir
	b, err := cmd.Output()
	return string(b), err
}
