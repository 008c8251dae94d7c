// Package withfleet_test runs the commands of a node as processes, beside a real agent of a real fleet.
package withfleet_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/rogpeppe/go-internal/testscript"

	"muster/internal/cli"
	"muster/internal/testbed"
	"muster/server"
	"muster/server/servercmd"
)

const (
	program  = "muster-server"
	identity = "web1.example.net"
)

// TestMain runs the verbs as cmd/muster-server does.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){program: func() {
		p := cli.Program{Name: program, Add: func(app *kingpin.Application, all cli.Verbs) {
			servercmd.AddDoctor(app, all)
			servercmd.AddCertificate(app, all)
			servercmd.AddCertmonger(app, all)
		}}
		os.Exit(p.Run(os.Args[1:])) //nolint:forbidigo // this is its main
	}})
}

// A host is the machine of a real agent.
type host struct {
	*testbed.Agent
	t *testing.T
	f *testbed.Fleet
}

func newHost(t *testing.T, opts testbed.Options, edit ...func(*server.Config)) *host {
	t.Helper()
	f := testbed.New(t, opts)
	edit = append(edit, func(cfg *server.Config) { cfg.Socket = server.DefaultSocket(cfg.SSLDir) })
	a := f.Agent(identity, f.Token(nil), edit...)
	f.WaitProvisioned(a)
	f.Eventually("the agent is connected", func() bool {
		return strings.Contains(f.Log(), `"msg":"connected to the fleet"`)
	})
	return &host{Agent: a, t: t, f: f}
}

// run runs a command of the node, with more variables of the environment.
func (h *host) run(env []string, args ...string) (status int, stdout, stderr string) {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), os.Args[0])
	cmd.Args = append(append([]string{program}, args...), "--config", filepath.Join(h.Dir, "server.conf"), "--ssl-dir", h.Dir)
	cmd.Env = append(os.Environ(), env...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), log.String()
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func request(t *testing.T, key *ecdsa.PrivateKey, r x509.CertificateRequest) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &r, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func certificate(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatalf("no certificate in %q", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s: no %q in\n%s", what, p, text)
		}
	}
}
