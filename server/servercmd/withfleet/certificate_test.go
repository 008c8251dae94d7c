package withfleet_test

import (
	"crypto/tls"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
	"muster/server"
	"muster/server/certificates"
)

// dir makes directories that only the agent's user can write, as specifications need them.
func (h *host) dir(name string) string {
	h.t.Helper()
	dir := filepath.Join(h.Dir, "..", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	return filepath.Clean(dir)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (h *host) specification(name, text string) {
	h.t.Helper()
	write(h.t, filepath.Join(h.Dir, "certificates.d", name+".yaml"), text)
}

func (h *host) status(name string) (s certificates.Status) {
	h.t.Helper()
	status, out, log := h.run(nil, "certificate", "show", name, "-o", "json")
	var answer struct{ Certificates []certificates.Status }
	if status != 0 {
		h.t.Logf("show %s: %s", name, log)
		return s
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Certificates) != 1 {
		h.t.Fatalf("%v: %s", err, out)
	}
	return answer.Certificates[0]
}

func (h *host) awaits(name, state string) (s certificates.Status) {
	h.t.Helper()
	h.f.Eventually(name+" is "+state, func() bool {
		s = h.status(name)
		return s.State == state
	})
	return s
}

// A file is all that a node needs to have a certificate, and the commands show and change it.
func TestASpecificationBecomesACertificate(t *testing.T) {
	t.Parallel()
	h := newHost(t, testbed.Options{})
	tlsDir := h.dir("tls")
	key, crt := filepath.Join(tlsDir, "web.key"), filepath.Join(tlsDir, "web.crt")
	h.specification("web", `dns_names: ["{{.identity}}", "www.{{.identity}}"]
files:
  key: {path: `+key+`}
  combined: {path: `+filepath.Join(tlsDir, "web.pem")+`}
  certificate: {path: `+crt+`}
`)
	s := h.awaits("web", certificates.Current)
	pair, err := tls.LoadX509KeyPair(filepath.Join(tlsDir, "web.pem"), key)
	if err != nil || len(pair.Certificate) != 2 {
		t.Fatalf("combined file has %d certificates: %v", len(pair.Certificate), err)
	}
	if err := pair.Leaf.VerifyHostname("www." + identity); err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{{"list"}, {"list", "-o", "wide"}, {"show", "web"}, {"check"}, {"check", "web"}} {
		status, out, log := h.run(nil, append([]string{"certificate"}, args...)...)
		if status != 0 || !strings.Contains(out, "web") || !strings.Contains(out, certificates.Current) {
			t.Errorf("%v: status %d\n%s%s", args, status, out, log)
		}
	}
	if status, out, _ := h.run(nil, "doctor", "--token-file", h.Token); status != 0 || !strings.Contains(out, "service web   current") {
		t.Errorf("doctor: status %d\n%s", status, out)
	}
	before := certificate(t, read(t, crt))
	for _, verb := range []string{"renew", "rekey"} {
		if status, _, log := h.run(nil, "certificate", verb, "web"); status != 0 {
			t.Fatalf("%s: status %d, %s", verb, status, log)
		}
		h.f.Eventually(verb, func() bool {
			s = h.status("web")
			return s.State == certificates.Current && certificate(t, read(t, crt)).SerialNumber.Cmp(before.SerialNumber) != 0
		})
		before = certificate(t, read(t, crt))
	}
	if status, _, log := h.run(nil, "certificate", "remove", "--revoke", "web"); status != 0 {
		t.Fatalf("remove: status %d, %s", status, log)
	}
	h.f.Eventually("key and specification are gone", func() bool {
		_, err := os.Stat(key)
		_, failed := os.Stat(filepath.Join(h.Dir, "certificates.d", "web.yaml"))
		return os.IsNotExist(err) && os.IsNotExist(failed)
	})
	h.f.Eventually("the certificate is revoked", func() bool { return h.f.OnCRL(s.Serial) })
	if status, _, log := h.run(nil, "certificate", "renew", "web", "none"); status != 1 || strings.Count(log, "no service") != 2 {
		t.Errorf("renew of none: status %d, %s", status, log)
	}
	h.f.Check()
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func pushing(certificates string) string {
	return "package muster.enroll\n\ndefault allow := true\n\n" + certificates + "\n"
}

// decide puts a policy in use and has the node ask for its configuration again.
func (h *host) decide(policy string) {
	h.t.Helper()
	reloads := strings.Count(h.f.Log(), `"msg":"policy reloaded"`)
	h.f.Write("policy/policy.rego", policy)
	h.f.Eventually("the policy is in use", func() bool {
		return strings.Count(h.f.Log(), `"msg":"policy reloaded"`) > reloads
	})
	applied := strings.Count(h.f.Log(), `"msg":"configuration applied"`)
	h.f.Eventually("the node takes the order", func() bool {
		_, err := h.f.Daemon().Orders().Nodes.Command(h.f.Context(), identity,
			operate.CommandOrder{Verb: wire.VerbReconfigure}, trust.Cause{By: "anna", Why: "test"})
		return err == nil
	})
	h.f.Eventually("the node has the configuration", func() bool {
		return strings.Count(h.f.Log(), `"msg":"configuration applied"`) > applied
	})
}

// The policy gives a node a certificate. A decision without `certificates` changes nothing, also for an agent that
// starts again; one with an empty set takes the certificate from the node's care.
func TestAPushedCertificateStaysUntilADecisionTakesIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	web := `certificates := {"web": {"dns_names": ["{{.identity}}"], "files": {"combined": {"path": "` + dir + `/web.pem"}}}}`
	h := newHost(t, testbed.Options{Policy: pushing(web)}, func(cfg *server.Config) {
		testbed.WatchOften(cfg)
		write(t, filepath.Join(filepath.Dir(cfg.ConfFile), "certificates.yaml"), "directories: ["+dir+"]\n")
	})
	s := h.awaits("web", certificates.Current)
	if s.Source != "pushed" {
		t.Errorf("source %q", s.Source)
	}
	h.decide(pushing(""))
	h.Stop()
	h.Start()
	h.f.Eventually("the agent answers", func() bool {
		status, _, _ := h.run(nil, "certificate", "renew", "web")
		return status == 0
	})
	h.f.Eventually("it is renewed", func() bool {
		now := h.status("web")
		return now.State == certificates.Current && now.Serial != s.Serial
	})
	h.decide(pushing("certificates := {}"))
	h.f.Eventually("no certificate is wanted", func() bool {
		_, out, _ := h.run(nil, "certificate", "list", "-o", "name")
		return out == ""
	})
	if status, out, log := h.run(nil, "certificate", "list"); status != 0 || out != "" ||
		!strings.Contains(log, "no service certificates") {
		t.Errorf("an empty list: %d, %q, %q", status, out, log)
	}
	if _, err := tls.LoadX509KeyPair(dir+"/web.pem", dir+"/web.pem"); err != nil {
		t.Errorf("the files do not stay: %v", err)
	}
	h.f.Check()
}
