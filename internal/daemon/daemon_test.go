package daemon_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/setup"
	"muster/jwt"
)

// install makes a setup for a provisioner on any free port.
func install(t *testing.T, edit func(*setup.Installation)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "provisioner")
	s := setup.Installation{Name: "prov1.example.net", TrustDomain: "example.net", Listen: "127.0.0.1:0"}
	if edit != nil {
		edit(&s)
	}
	if err := setup.Init(dir, s); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMistakesAreListedAtOnce(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		yaml string
		want []string
	}{
		"an empty file": {"", []string{"name: missing", "trust_domain: missing", "data_dir: missing",
			"broker.names: missing", "tokens.signers: missing",
			"ca.root: missing", "ca.certificate: missing", "ca.key: missing", "policy: missing"}},
		"unknown keys": {"naem: x\nbroker: {prot: 1}\n", []string{"naem", "prot"}},
		"values out of range": {`
name: prov_1
trust_domain: example.net
site: "a b"
data_dir: data
broker: {listen: "broker:4222", names: ["*.example.net"], addresses: [localhost], max_connections: -1}
tokens: {signers: [{sites: ["?"], identities: ["a..b"]}]}
ca: {root: r, certificate: c, key: k}
certificates: {lifetime: 10000h, max_lifetime: 9000h}
policy: p
configuration: {template: t, helper: [h], timeout: 1h}
seal: {keys: [no-seal.pem]}
quotas: {per_token: -1, per_source: -2}
reserved: ["[a]"]
fleet: {facts: [os.name, "a b", db_password, os.name]}
health: {metrics: true}
puppet: {listen: "puppet:8140", names: [192.0.2.1, "*.example.net"], bundle: b}
`, []string{"name: ", "site: ", "broker.listen: ", "broker.names[0]: ", "broker.addresses[0]: ",
			"broker.max_connections: ", "health.metrics: set without health.listen",
			"tokens.signers[0].file: missing", "tokens.signers[0].sites[0]: ", "tokens.signers[0].identities[0]: ",
			"certificates.lifetime: ", "certificates.max_lifetime: ", "configuration.helper: ",
			"configuration.timeout: ",
			"quotas.per_token: ", "quotas.per_source: ", "reserved[0]: ",
			"puppet.listen: ", "puppet.names[1]: ", "puppet.key: missing", "puppet.root_crl: missing",
			`fleet.facts: fact "a b": want a name of 1 to 64 letters`,
			`fleet.facts: fact "db_password": the name suggests a secret`, `fleet.facts: fact "os.name": named twice`,
		}},
		"an embedded broker and external ones": {`
name: prov1.example.net
trust_domain: example.net
data_dir: data
store: {replicas: 6}
broker:
  listen: ":4222"
  url: "tls://n1:4222"
  names: [broker.example.net]
  max_connections: 5
  credentials: no-login
  callout: {xkey: no-xkey}
tokens: {signers: [{file: no-signer.pem}]}
ca: {root: r, certificate: c, key: k}
policy: p
`, []string{"broker.listen: set together with broker.url", "store.replicas: is 6",
			"broker.system_credentials: missing", "broker.callout.issuer: missing",
			"broker.max_connections: "}},
		"copies on one server": {`
name: prov1.example.net
trust_domain: example.net
data_dir: data
store: {replicas: 3}
broker: {names: [broker.example.net]}
tokens: {signers: [{file: no-signer.pem}]}
ca: {root: r, certificate: c, key: k}
policy: p
`, []string{"store.replicas: is 3, want 1 without broker.url"}},
		"a signer with empty limits": {`
tokens:
  signers:
    - file: build.pem
      identities:
      # - web*.example.net
    - {file: other.pem, sites: []}
`, []string{"line 5: a list entry, or a key in it, has no value",
			"line 7: a list entry, or a key in it, has no value"}},
		"files that are not there": {`
name: prov1.example.net
trust_domain: example.net
data_dir: data
broker: {names: [broker.example.net]}
tokens: {signers: [{file: no-signer.pem}]}
ca: {root: no-root.pem, certificate: no-issuing.pem, key: no-key.pem}
seal: {keys: [no-seal.pem]}
policy: no-policy
configuration: {template: no-template}
`, []string{"no-signer.pem", "no-root.pem", "no-issuing.pem", "no-key.pem", "no-seal.pem", "no-policy", "no-template"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "provisioner.yaml")
			if err := os.WriteFile(path, []byte(tt.yaml), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := daemon.Load(path, daemon.Options{})
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestAnotherInstallationsStoreIsRefused(t *testing.T) {
	t.Parallel()
	one, two := install(t, nil), install(t, nil)
	start := func(dir string, data string) error {
		d, err := daemon.LoadWith(filepath.Join(dir, "provisioner.yaml"), daemon.Options{},
			func(c *daemon.Config) { c.DataDir = data })
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return d.Run(ctx, cancel)
	}
	data := filepath.Join(one, "data")
	if err := start(one, data); err != nil {
		t.Fatal(err)
	}
	if err := start(two, data); err == nil || !strings.Contains(err.Error(), "another installation") {
		t.Errorf("the other installation: %v", err)
	}
	if err := start(one, data); err != nil {
		t.Errorf("the first one again: %v", err)
	}
}

func TestAPortThatIsTakenIsNamedByItsKey(t *testing.T) {
	t.Parallel()
	dir := install(t, nil)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	for key, edit := range map[string]func(*daemon.Config){
		"broker.listen":           func(c *daemon.Config) { c.Broker.Listen = busy.Addr().String() },
		"broker.websocket.listen": func(c *daemon.Config) { c.Broker.WebSocket.Listen = busy.Addr().String() },
		"api.listen": func(c *daemon.Config) {
			c.API.Listen, c.API.Names = busy.Addr().String(), []string{"prov1.example.net"}
		},
		"health.listen": func(c *daemon.Config) { c.Health.Listen = busy.Addr().String() },
	} {
		d, err := daemon.LoadWith(filepath.Join(dir, "provisioner.yaml"), daemon.Options{}, edit)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err = d.Run(ctx, cancel)
		cancel()
		if want := ": stop the program that listens there, or change " + key; err == nil ||
			!strings.Contains(err.Error(), "address already in use") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("Run = %v, want the address in use%s", err, want)
		}
	}
}

func TestWorldReadableSecretsAreRefused(t *testing.T) {
	t.Parallel()
	dir := install(t, nil)
	for _, key := range []string{"ca/issuing-key.pem", "seal-key.pem"} {
		if err := os.Chmod(filepath.Join(dir, key), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{})
	if err == nil || strings.Count(err.Error(), "chmod 600") != 2 {
		t.Errorf("Load = %v, want chmod 600 for both keys", err)
	}
}

func TestACertificateForItsKeyIsNamed(t *testing.T) {
	t.Parallel()
	dir := install(t, nil)
	path := filepath.Join(dir, "provisioner.yaml")
	for key, want := range map[string]string{
		"ca/issuing.pem":  "ca/issuing.pem and " + dir + "/ca/issuing.pem: tls: ",
		"seal-key.pem":    "ca/issuing.pem and " + dir + "/seal-key.pem: tls: ",
		"nowhere-key.pem": "open " + dir + "/nowhere-key.pem: no such file",
	} {
		text := strings.Replace(readText(t, path), "\napi:\n",
			"\napi:\n  listen: 127.0.0.1:0\n  certificate: ca/issuing.pem\n  key: "+key+"\n", 1)
		edited := filepath.Join(dir, "edited.yaml")
		writeText(t, edited, text)
		if _, err := daemon.Load(edited, daemon.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load with key %s = %v, want %q in it", key, err, want)
		}
	}
}

func TestAWrongKeyIsRefused(t *testing.T) {
	t.Parallel()
	dir, other := install(t, nil), install(t, nil)
	b, err := os.ReadFile(filepath.Join(other, "ca/issuing-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca/issuing-key.pem"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "ca: DIR/ca/root.pem, DIR/ca/issuing.pem and DIR/ca/issuing-key.pem: certificate authority: key does " +
		"not belong to the issuing certificate"
	if _, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{}); err == nil ||
		strings.ReplaceAll(err.Error(), dir, "DIR") != want {
		t.Errorf("Load = %v, want %s", err, want)
	}
	// A private key as a signer is named as such.
	pem, err := os.ReadFile(filepath.Join(dir, "signer-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jwt.ParseSigner(pem); err == nil {
		t.Error("a private key passes for a signer")
	}
}
