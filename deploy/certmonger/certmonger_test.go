package certmonger_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// list returns what `getcert list` shows of a request.
func (n *node) list(id string) map[string]string {
	n.Helper()
	shown := map[string]string{}
	for line := range strings.Lines(n.run("getcert", "list", "-i", id)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		shown[strings.TrimSuffix(key, ":")] = value
	}
	return shown
}

// waitState waits until a request has a state, and returns what is shown of it then.
func (n *node) waitState(id, state string) (shown map[string]string) {
	n.Helper()
	defer func() {
		if n.Failed() {
			n.Logf("%s: %v", id, shown)
		}
	}()
	eventually(n, id+" is "+state, func() bool {
		shown = n.list(id)
		return shown["status"] == state
	})
	return shown
}

// request asks for a certificate, and waits for as long as getcert does. status is the exit status.
func (n *node) request(status int, id, name string, args ...string) {
	n.Helper()
	n.status(status, append([]string{"getcert", "request", "-c", "muster", "-w", "-I", id, "-f", n.path(id + ".pem"), "-k",
		n.path(id + ".key"), "-F", n.path(id + "-ca.pem"), "-D", name}, args...)...)
}

// certificate returns the certificate of a request, which fits its key and is valid under the roots in its -F file.
func (n *node) certificate(id string) *x509.Certificate {
	n.Helper()
	pair, err := tls.X509KeyPair(n.contents(id+".pem"), n.contents(id+".key"))
	if err != nil {
		n.Fatalf("%s: %v", id, err)
	}
	roots, issuing := x509.NewCertPool(), x509.NewCertPool()
	for rest := n.contents(id + "-ca.pem"); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			n.Fatal(err)
		}
		if bytes.Equal(c.RawIssuer, c.RawSubject) {
			roots.AddCert(c)
		} else {
			issuing.AddCert(c)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: issuing}); err != nil {
		n.Errorf("%s: certificate under its -F file: %v", id, err)
	}
	return pair.Leaf
}

// TestCertmonger has certmonger do what its users do.
func TestCertmonger(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1)
	run := func(what string, do func(n *node)) {
		t.Run(what, func(t *testing.T) {
			own := *n
			own.T = t
			do(&own)
		})
	}
	run("authority", func(n *node) {
		if out := n.run("getcert", "list-cas", "-v", "-c", "muster"); !strings.Contains(out, "muster-server certmonger") {
			n.Errorf("certmonger shows %s", out)
		}
		eventually(n, "certmonger has asked for all that it keeps", func() bool {
			kept := string(n.contents("certmonger/cas/muster"))
			return strings.Contains(kept, "ca_aka=muster-server ") && strings.Contains(kept, "ca_root_certs=example.net ") &&
				strings.Contains(kept, "ca_other_certs=example.net issuing CA")
		})
	})
	run("names, action and combined file", func(n *node) {
		combined := n.path("combined.pem")
		n.request(0, "web", "a.web1.example.net", "-D", "b.web1.example.net", "-A", "192.0.2.7", "-N", "CN=ignored",
			"-C", fmt.Sprintf("sh -c 'cat %s %s %s > %s'", n.path("web.pem"), n.path("web-ca.pem"), n.path("web.key"), combined))
		n.waitState("web", "MONITORING")
		c := n.certificate("web")
		if got := fmt.Sprint(c.DNSNames, c.IPAddresses, c.Subject); got != "[a.web1.example.net b.web1.example.net] [192.0.2.7] " {
			n.Errorf("certificate is for %s", got)
		}
		eventually(n, "the action has made a file", func() bool {
			_, err := os.Stat(combined)
			return err == nil && bytes.Contains(n.contents("combined.pem"), []byte("PRIVATE KEY"))
		})
		pair, err := tls.LoadX509KeyPair(combined, combined)
		if err != nil || len(pair.Certificate) < 2 {
			n.Errorf("combined file has %d certificates, %v: want one with its chain", len(pair.Certificate), err)
		}
	})
	run("resubmit and rekey", func(n *node) {
		n.request(0, "again", "again.web1.example.net")
		first := n.certificate("again")
		n.run("getcert", "resubmit", "-w", "-i", "again", "-D", "again.web1.example.net", "-D", "more.web1.example.net")
		n.waitState("again", "MONITORING")
		second := n.certificate("again")
		if len(second.DNSNames) != 2 || !bytes.Equal(first.RawSubjectPublicKeyInfo, second.RawSubjectPublicKeyInfo) {
			n.Errorf("resubmit: names %q, want two and the same key", second.DNSNames)
		}
		n.run("getcert", "rekey", "-w", "-i", "again")
		n.waitState("again", "MONITORING")
		third := n.certificate("again")
		if bytes.Equal(third.RawSubjectPublicKeyInfo, second.RawSubjectPublicKeyInfo) {
			n.Error("rekey kept the key")
		}
		got := slices.DeleteFunc(n.listed(), func(c listed) bool { return !slices.Contains(c.Names, "again.web1.example.net") })
		if len(got) != 1 || got[0].Serial != fmt.Sprintf("%x", third.SerialNumber) {
			n.Errorf("muster lists %v, want one entry with serial %x", got, third.SerialNumber)
		}
	})
	run("refused name", func(n *node) {
		n.request(2, "stolen", "web2.example.net")
		shown := n.waitState("stolen", "CA_REJECTED")
		_, advice, _ := strings.Cut(shown["ca-error"], "`")
		advice, _, found := strings.Cut(advice, "`")
		if shown["stuck"] != "yes" || !strings.HasPrefix(shown["ca-error"], "denied: ") || !found {
			n.Fatalf("certmonger shows %v", shown)
		}
		const why = "web1.example.net may not have the name web2.example.net"
		if out := n.run(strings.Fields(advice)...); !strings.Contains(out, why) {
			n.Errorf("%s does not say why:\n%s", advice, out)
		}
	})
	run("approval", func(n *node) {
		n.request(5, "guarded", "guarded.web1.example.net", "-T", "guarded")
		if shown := n.waitState("guarded", "CA_WORKING"); shown["stuck"] != "no" {
			n.Errorf("certmonger shows %v", shown)
		}
		waiting := n.listed("--waiting")
		if len(waiting) != 1 {
			n.Fatalf("%v wait, want one", waiting)
		}
		n.run("muster", "certificate", "approve", identity, waiting[0].Name, "--why", "looked at")
		n.waitState("guarded", "MONITORING")
		n.certificate("guarded")
	})
	run("broker away", func(n *node) {
		n.provisioner.end(syscall.SIGTERM)
		n.request(5, "later", "later.web1.example.net")
		if shown := n.waitState("later", "CA_WORKING"); shown["stuck"] != "no" {
			n.Errorf("certmonger shows %v", shown)
		}
		n.startProvisioner()
		n.waitState("later", "MONITORING")
		n.certificate("later")
	})
}

// A listed certificate is one that `muster certificate list` shows.
type listed struct {
	Name, Serial string
	Names        []string
}

func (n *node) listed(args ...string) []listed {
	n.Helper()
	var page struct{ Certificates []listed }
	out := n.run(append([]string{"muster", "certificate", "list", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &page); err != nil {
		n.Fatalf("%v: %s", err, out)
	}
	return page.Certificates
}

// TestRenewal has certmonger renew by its own clock, which runs faster: it renews an hour before the end.
func TestRenewal(t *testing.T) {
	t.Parallel()
	n := newNode(t, 200)
	n.request(0, "clock", "clock.web1.example.net")
	first := n.certificate("clock")
	eventually(n, "certmonger renews", func() bool {
		return n.list("clock")["status"] == "MONITORING" && n.certificate("clock").SerialNumber.Cmp(first.SerialNumber) != 0
	})
}
