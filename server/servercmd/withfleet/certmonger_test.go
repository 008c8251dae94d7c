package withfleet_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/testbed"
	"muster/provisioner/trust"
)

func submit(csr string, more ...string) []string {
	return append([]string{"CERTMONGER_OPERATION=SUBMIT", "CERTMONGER_CSR=" + csr}, more...)
}

// certmonger gets a certificate and its chain, the same one for the same request, another one for another key, and the
// name stays.
func TestCertmongerGetsACertificate(t *testing.T) {
	t.Parallel()
	h := newHost(t, testbed.Options{})
	key := newKey(t)
	csr := request(t, key, x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "ignored.example.net"},
		DNSNames: []string{identity, "www." + identity},
	})
	status, out, log := h.run(submit(csr), "certmonger")
	if status != 0 || strings.Count(out, "BEGIN CERTIFICATE") != 2 {
		t.Fatalf("status %d, %s\n%s", status, out, log)
	}
	first := certificate(t, out)
	if !first.PublicKey.(*ecdsa.PublicKey).Equal(key.Public()) || first.Subject.String() != "" ||
		!slices.Equal(first.DNSNames, []string{identity, "www." + identity}) ||
		!slices.Equal(first.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) ||
		!strings.HasPrefix(first.URIs[0].Path, "/service/"+identity+"/certmonger-") {
		t.Errorf("certificate for %v, %v, %v", first.DNSNames, first.URIs, first.ExtKeyUsage)
	}
	status, again, log := h.run(submit(csr, "CERTMONGER_OPERATION=POLL", "CERTMONGER_CA_COOKIE=muster 3"), "certmonger")
	if status != 0 || again != out {
		t.Errorf("POLL of the same request: status %d, another answer: %v\n%s", status, again != out, log)
	}
	other := request(t, newKey(t), x509.CertificateRequest{DNSNames: []string{identity}})
	status, out, log = h.run(submit(other, "CERTMONGER_CERTIFICATE="+out), "certmonger")
	if status != 0 {
		t.Fatalf("rekey: status %d, %s\n%s", status, out, log)
	}
	if next := certificate(t, out); next.URIs[0].Path != first.URIs[0].Path {
		t.Errorf("the name changed from %s to %s", first.URIs[0], next.URIs[0])
	}
}

// A refusal ends with 2 and one line that says what an operator can do.
func TestCertmongerIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	h := newHost(t, testbed.Options{})
	client, err := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 2}})
	if err != nil {
		t.Fatal(err)
	}
	ok := x509.CertificateRequest{DNSNames: []string{identity}}
	for name, tt := range map[string]struct {
		env  []string
		want string
	}{
		"wildcard": {submit(request(t, newKey(t), x509.CertificateRequest{DNSNames: []string{"*." + identity}})),
			"muster certificate show " + identity + " certmonger-"},
		"client usage": {submit(request(t, newKey(t), x509.CertificateRequest{
			DNSNames:        []string{identity},
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: client}},
		})), "muster certificate show"},
		"profile":    {submit(request(t, newKey(t), ok), "CERTMONGER_CA_PROFILE=a b"), "profile"},
		"no request": {[]string{"CERTMONGER_CSR="}, "CERTMONGER_CSR"},
		"no CSR":     {submit("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"), "CERTMONGER_CSR"},
	} {
		status, out, log := h.run(tt.env, "certmonger")
		if status != 2 || strings.Count(out, "\n") != 1 || !strings.Contains(out, tt.want) {
			t.Errorf("%s: status %d, %q\n%s", name, status, out, log)
		}
	}
}

// While an approval is pending, certmonger is told to ask again; then it gets the certificate, and after a rejection why
// it does not.
func TestCertmongerWaitsForAnApproval(t *testing.T) {
	t.Parallel()
	h := newHost(t, testbed.Options{})
	csr := request(t, newKey(t), x509.CertificateRequest{DNSNames: []string{"vip.example.net"}})
	ask := func() (int, string, string) { return h.run(submit(csr), "certmonger") }
	status, out, log := ask()
	_, name, _ := strings.Cut(log, "muster certificate show "+identity+" ")
	name, _, ok := strings.Cut(name, "`")
	if status != 5 || !strings.HasSuffix(out, "\nmuster 1\n") || !ok {
		t.Fatalf("status %d, %q\n%s", status, out, log)
	}
	services, cause := h.f.Daemon().Services(), trust.Cause{By: "anna", Why: "test"}
	if err := services.Reject(t.Context(), identity, name, "", cause); err != nil {
		t.Fatal(err)
	}
	if status, out, log := ask(); status != 2 || strings.Count(out, "\n") != 1 {
		t.Errorf("rejected: status %d, %q\n%s", status, out, log)
	}
	if err := services.Approve(t.Context(), identity, name, "", cause); err != nil {
		t.Fatal(err)
	}
	if status, out, log := ask(); status != 0 || !strings.Contains(out, "BEGIN CERTIFICATE") {
		t.Errorf("approved: status %d, %q\n%s", status, out, log)
	}
}

// Whatever is temporary lets certmonger ask again, at first soon.
func TestCertmongerWaitsForAnAgentThatIsAway(t *testing.T) {
	t.Parallel()
	h := newHost(t, testbed.Options{})
	csr := request(t, newKey(t), x509.CertificateRequest{DNSNames: []string{identity}})
	h.Stop()
	for cookie, want := range map[string]string{"": "2\nmuster 1\n", "muster 3": "16\nmuster 4\n",
		"muster 4000": "60\nmuster 10\n", "muster -4": "2\nmuster 1\n", "other": "2\nmuster 1\n"} {
		status, out, log := h.run(submit(csr, "CERTMONGER_CA_COOKIE="+cookie), "certmonger")
		if status != 5 || out != want {
			t.Errorf("cookie %q: status %d, %q, want 5 and %q", cookie, status, out, want)
		}
		contains(t, "log", log, "the agent does not answer", "systemctl start muster-server")
	}
	h.f.Stop()
	h.Start() // without a broker
	h.f.Eventually("the socket is open", func() bool {
		_, err := os.Stat(filepath.Join(h.Dir, "agent.sock"))
		return err == nil
	})
	if status, out, log := h.run(submit(csr), "certmonger"); status != 5 {
		t.Errorf("without a broker: status %d, %q\n%s", status, out, log)
	}
	h.f.Start()
	h.f.Eventually("certmonger gets its certificate", func() bool {
		status, _, _ := h.run(submit(csr), "certmonger")
		return status == 0
	})
}

func TestCertmongerLearnsAboutTheHelper(t *testing.T) {
	t.Parallel()
	h := newHost(t, testbed.Options{})
	for operation, want := range map[string]string{
		"IDENTIFY":                       "muster-server ",
		"GET-NEW-REQUEST-REQUIREMENTS":   "CERTMONGER_CSR\n",
		"GET-RENEW-REQUEST-REQUIREMENTS": "CERTMONGER_CSR\n",
		"GET-SUPPORTED-TEMPLATES":        "",
		"GET-DEFAULT-TEMPLATE":           "",
	} {
		status, out, _ := h.run([]string{"CERTMONGER_OPERATION=" + operation}, "certmonger")
		if status != 0 || !strings.HasPrefix(out, want) || want == "" && out != "" || strings.Count(out, "\n") > 1 {
			t.Errorf("%s: status %d, %q", operation, status, out)
		}
	}
	for _, operation := range []string{"FETCH-SCEP-CA-CAPS", "DANCE"} {
		if status, out, _ := h.run([]string{"CERTMONGER_OPERATION=" + operation}, "certmonger"); status != 6 || out != "" {
			t.Errorf("%s: status %d, %q, want 6", operation, status, out)
		}
	}
	status, out, log := h.run([]string{"CERTMONGER_OPERATION=FETCH-ROOTS"}, "certmonger")
	groups := strings.Split(out, "\n\n")
	if status != 0 || len(groups) != 3 || groups[0] != strings.TrimSpace(groups[2])+"\n"+groups[1] {
		t.Fatalf("FETCH-ROOTS: status %d\n%s%s", status, out, log)
	}
	root, issuing := certificate(t, groups[1]), certificate(t, groups[2])
	if err := issuing.CheckSignatureFrom(root); err != nil || !strings.HasPrefix(groups[1], root.Subject.CommonName+" ") ||
		strings.Count(out, "BEGIN CERTIFICATE") != 4 {
		t.Errorf("%v:\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(h.Dir, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	if status, out, _ := h.run([]string{"CERTMONGER_OPERATION=FETCH-ROOTS"}, "certmonger"); status != 3 || out != "" {
		t.Errorf("FETCH-ROOTS without an authority: status %d, %q", status, out)
	}
}

func TestTheHelpersFileIsAsCertmongerExpectsIt(t *testing.T) {
	t.Parallel()
	h := &host{Agent: &testbed.Agent{Dir: "/srv/agent"}, t: t}
	dir := t.TempDir()
	for range 2 { // again is harmless
		status, out, log := h.run([]string{"CERTMONGER_CAS_DIR=" + dir}, "certmonger", "--install")
		if status != 0 {
			t.Fatalf("status %d, %s%s", status, out, log)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "muster"))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "file", string(text), "id=muster\nca_type=EXTERNAL\nca_is_default=0\nca_external_helper=/",
		" certmonger --ssl-dir /srv/agent --socket /srv/agent/agent.sock\n")
	status, _, log := h.run([]string{"CERTMONGER_CAS_DIR=" + dir + "/none"}, "certmonger", "--install")
	if status != 1 || !strings.Contains(log, "is certmonger installed?") {
		t.Errorf("without certmonger: status %d, %s", status, log)
	}
}
