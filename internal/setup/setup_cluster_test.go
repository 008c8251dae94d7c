package setup_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/daemon"
	"muster/internal/setup"
	"muster/provisioner/broker"
)

// TestInitForACluster makes a setup for servers elsewhere: it loads as it is, and
// the servers' certificates are for the names by which they are called.
func TestInitForACluster(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "prov")
	installation := setup.Installation{
		Name:        "prov1.example.net",
		TrustDomain: "example.net",
		Cluster:     "tls://n1.example.net:4222,tls://192.0.2.7:4222",
	}
	if err := setup.Init(dir, installation); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "provisioner.yaml")
	d, err := daemon.Load(path, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.BrokerURL(); got != installation.Cluster {
		t.Errorf("BrokerURL = %q, want %q", got, installation.Cluster)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"- n1.example.net", "- 192.0.2.7", "replicas: 3"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("provisioner.yaml lacks %q:\n%s", want, text)
		}
	}
	server := setup.BrokerServer{
		Dir:          "/etc/nats",
		ServerConfig: broker.ServerConfig{Name: "n1", Listen: ":4222", StoreDir: "/var/nats"},
	}
	files := filepath.Join(t.TempDir(), "n1")
	if err := server.Write(path, files); err != nil {
		t.Fatal(err)
	}
	if err := server.Write(path, files); err == nil {
		t.Error("the files of a server are overwritten")
	}
	// Secrets that are readable by all are refused.
	if err := os.Chmod(filepath.Join(dir, "cluster/issuer"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.Load(path, daemon.Options{}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("Load = %v, want the chmod to run", err)
	}
}

// TestACertificateOfAnotherServerIsNotReplaced, though all have the names under which nodes
// look for any of them.
func TestACertificateOfAnotherServerIsNotReplaced(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "prov")
	installation := setup.Installation{
		Name:        "prov1.example.net",
		TrustDomain: "example.net",
		Cluster:     "tls://n1.example.net:4222,tls://n2.example.net:4222",
	}
	if err := setup.Init(dir, installation); err != nil {
		t.Fatal(err)
	}
	path, files := filepath.Join(dir, "provisioner.yaml"), filepath.Join(t.TempDir(), "n1")
	server := setup.BrokerServer{
		Dir:          files,
		ServerConfig: broker.ServerConfig{Name: "n1.example.net", Listen: ":4222", StoreDir: "/var/nats"},
	}
	if err := server.Write(path, files); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(files, "key.pem")
	const nobody = 65534
	if os.Geteuid() == 0 {
		if err := os.Chown(files, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Renew(path, files); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(key)
	if err != nil || bytes.Equal(before, after) {
		t.Errorf("the key is the one of before: %v", err)
	}
	if info, err := os.Stat(key); err != nil || info.Mode() != 0o600 || os.Geteuid() == 0 &&
		info.Sys().(*syscall.Stat_t).Uid != nobody {
		t.Errorf("the new key: %v, %v; want it to be of the server's user", info, err)
	}
	server.Name = "n2.example.net"
	if err := server.Renew(path, files); err == nil {
		t.Error("n1's directory has the certificate of n2 now")
	}
}

// TestTheCertificateOfAServerByAnotherNameIsRenewed has a cluster of addresses: no server's
// name is in its certificate's names.
func TestTheCertificateOfAServerByAnotherNameIsRenewed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "prov")
	if err := setup.Init(dir,
		setup.Installation{
			Name:        "prov1.example.net",
			TrustDomain: "example.net",
			Cluster:     "tls://192.0.2.7:4222",
		}); err != nil {
		t.Fatal(err)
	}
	path, files := filepath.Join(dir, "provisioner.yaml"), filepath.Join(t.TempDir(), "n1")
	server := setup.BrokerServer{
		Dir:          files,
		ServerConfig: broker.ServerConfig{Name: "n1", Listen: ":4222", StoreDir: "/var/nats"},
	}
	if err := server.Write(path, files); err != nil {
		t.Fatal(err)
	}
	if err := server.Renew(path, files); err != nil {
		t.Error(err)
	}
}
