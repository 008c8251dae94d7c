package withfleet_test

import (
	"crypto/tls"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testbed"
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

func (h *host) write(path, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) specification(name, text string) {
	h.t.Helper()
	h.write(filepath.Join(h.Dir, "certificates.d", name+".yaml"), text)
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
