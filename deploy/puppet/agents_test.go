package puppet_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// rules are the policy of the agents under test.
const rules = `
allow if input.csr.extensions.pp_role == "web"

allow if startswith(input.identity, "auto-")

deny contains "this machine is for spare parts" if startswith(input.identity, "spare-")

certificate := {"extensions": {"pp_role": input.csr.extensions.pp_role}} if input.identity != "auto-renews.example.net"

certificate := {"ttl": "150s"} if input.identity == "auto-renews.example.net"
`

// TestAgents has agents of both versions in each situation that operators meet.
func TestAgents(t *testing.T) {
	t.Parallel()
	f := newFleet(t, rules)
	fleetToken := f.token()
	for _, version := range []string{older, newer} {
		name := func(what string) string { return what + "-" + strings.ReplaceAll(version, ".", "-") + ".example.net" }
		run := func(what string, do func(t *testing.T, f *fleet, host string)) {
			t.Run(version+" "+what, func(t *testing.T) {
				t.Parallel()
				own := *f
				own.T = t
				do(t, &own, name(strings.ReplaceAll(what, " ", "-")))
			})
		}
		run("token and run", func(t *testing.T, f *fleet, host string) {
			a := f.machine(version, host, token(fleetToken))
			a.must(0, "ssl", "bootstrap")
			a.must(0, "ssl", "verify")
			a.applies(0o640)
			a.must(0, "agent", "--test")
			a.once(a.certificate())
			if shown := f.muster("node", "show", host); !strings.Contains(shown, "unchanged") {
				t.Errorf("muster node show has no last run:\n%s", shown)
			}
			a.must(0, "ssl", "clean")
			a.must(1, "ssl", "verify")
		})
		run("waits for approval", func(t *testing.T, f *fleet, host string) {
			a := f.machine(version, host, "")
			p := a.starts("ssl", "bootstrap", "--waitforcert", "1")
			f.waitRefused("approval_pending", host)
			f.muster("node", "approve", host, "--why", "a test")
			if status := p.exit(); status != 0 {
				t.Errorf("the agent ended with %d", status)
			}
			a.once(a.certificate())
		})
		run("spare", func(t *testing.T, f *fleet, host string) {
			a := f.machine(version, host, token(fleetToken))
			if out := a.must(1, "ssl", "bootstrap", "--waitforcert", "0"); !strings.Contains(out, "has not been signed yet") {
				t.Errorf("the agent prints:\n%s", out)
			}
			f.waitRefused("denied", host)
			if told := f.muster("node", "explain", host); !strings.Contains(told, "for spare parts") {
				t.Errorf("muster node explain prints:\n%s", told)
			}
		})
		run("policy on pp role", func(t *testing.T, f *fleet, host string) {
			a := f.machine(version, host, "extension_requests:\n  pp_role: web\n")
			a.must(0, "ssl", "bootstrap")
			var role string
			for _, e := range a.certificate().Extensions {
				if e.Id.String() == "1.3.6.1.4.1.34380.1.1.13" {
					role = string(e.Value)
				}
			}
			if role != "\x0c\x03web" {
				t.Errorf("pp_role of the certificate is %q", role)
			}
		})
		run("one time token", func(t *testing.T, f *fleet, host string) {
			secret := f.muster("node", "grant", host, "--one-time", "--why", "a test")
			a := f.machine(version, host, token(secret))
			a.must(0, "ssl", "bootstrap")
			a.once(a.certificate())
			a.must(0, "ssl", "clean")
			a.must(1, "ssl", "bootstrap", "--waitforcert", "0")
			f.waitRefused("identity_taken", host)
		})
		run("auto fingerprint", func(t *testing.T, f *fleet, host string) {
			sum := sha256.Sum256([]byte(f.contents("prov/puppet-ca/bundle.pem")))
			a := f.machine(version, host, "")
			a.must(1, "ssl", "bootstrap", "--waitforcert", "0", "--ca_fingerprint", strings.Repeat("00", 32))
			a.must(0, "ssl", "bootstrap", "--ca_fingerprint", hex.EncodeToString(sum[:]))
		})
		run("auto rebuilt machine", func(t *testing.T, f *fleet, host string) {
			a := f.machine(version, host, "")
			a.must(0, "ssl", "bootstrap")
			a.once(a.certificate())
			former := f.record(host).Record.Lineage[0]
			if err := os.RemoveAll(f.path(a.dir + "/var")); err != nil {
				t.Fatal(err)
			}
			p := a.starts("ssl", "bootstrap", "--waitforcert", "1")
			f.waitRefused("identity_taken", host)
			f.muster("node", "grant", host, "--fingerprint", a.key(), "--why", "a new disk", "--yes")
			if status := p.exit(); status != 0 {
				t.Errorf("the rebuilt agent ended with %d", status)
			}
			if now := f.record(host); now.Record.Lineage[0] == former {
				t.Errorf("record %+v has the former key", now)
			}
			a.must(0, "ssl", "verify")
		})
		run("auto revoked", func(t *testing.T, f *fleet, host string) {
			a := f.machine(version, host, "")
			a.must(0, "ssl", "bootstrap")
			a.must(2, "agent", "--test")
			f.muster("node", "revoke", host, "--why", "a test", "--yes")
			if out := a.must(1, "agent", "--test"); !strings.Contains(out, "403") && !strings.Contains(out, "orbidden") {
				t.Errorf("the revoked agent prints:\n%s", out)
			}
			if err := os.Remove(f.path(a.dir + "/var/ssl/crl.pem")); err != nil {
				t.Fatal(err)
			}
			if out := a.must(1, "agent", "--test"); !strings.Contains(out, "is revoked") {
				t.Errorf("the revoked agent with a new list prints:\n%s", out)
			}
		})
		run("auto request and download", func(t *testing.T, f *fleet, host string) {
			a := f.machine(version, host, "")
			a.must(0, "ssl", "submit_request")
			a.must(0, "ssl", "download_cert")
			a.must(0, "ssl", "verify")
		})
	}
	t.Run("a renewal keeps the key", func(t *testing.T) {
		t.Parallel()
		own := *f
		own.T = t
		a := own.machine(newer, "auto-renews.example.net", "")
		a.must(0, "ssl", "bootstrap")
		first := a.certificate()
		eventually(t, "two thirds of its life are over", func() bool { return time.Until(first.NotAfter) < 45*time.Second })
		out := a.must(2, "agent", "--test")
		renewed := a.certificate()
		if renewed.SerialNumber.Cmp(first.SerialNumber) == 0 ||
			string(renewed.RawSubjectPublicKeyInfo) != string(first.RawSubjectPublicKeyInfo) {
			t.Errorf("the certificate was not renewed:\n%s", out)
		}
		a.must(0, "agent", "--test")
		if r := a.record(a.name); fmt.Sprintf("%x", renewed.SerialNumber) != strings.TrimLeft(r.Record.Current.Serial, "0") {
			t.Errorf("record %+v, want serial %x", r, renewed.SerialNumber)
		}
	})
	t.Run("an EC key", func(t *testing.T) {
		t.Parallel()
		own := *f
		own.T = t
		a := own.machine(newer, "auto-ec.example.net", "")
		a.must(0, "ssl", "bootstrap", "--key_type", "ec")
		if got := a.certificate().PublicKeyAlgorithm; got != x509.ECDSA {
			t.Errorf("the key is %v", got)
		}
		a.applies(0o640)
	})
}

// token signs the token of a fleet's agents.
func (f *fleet) token() string {
	f.Helper()
	f.muster("jwt", "token.jwt", "prov/signer-key.pem", "--insecure", "--secret-file", "prov/secret", "--default",
		"--urls", "localhost:4222", "--identity", "*.example.net")
	return f.contents("token.jwt")
}

// certificate returns the one on the agent's disk.
func (a *agent) certificate() *x509.Certificate {
	a.Helper()
	block, _ := pem.Decode([]byte(a.contents(a.dir + "/var/ssl/certs/" + a.name + ".pem")))
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		a.Fatal(err)
	}
	return c
}

// applies has the agent do a run that writes its configuration.
func (a *agent) applies(mode os.FileMode) {
	a.Helper()
	out := a.must(2, "agent", "--test")
	info, err := os.Stat(a.path(a.dir + "/muster/server.conf"))
	if err != nil {
		a.Fatalf("%v:\n%s", err, out)
	}
	b := a.contents(a.dir + "/muster/server.conf")
	if info.Mode().Perm() != mode || !strings.Contains(b, "identity = "+a.name) {
		a.Errorf("mode %v, contents %q", info.Mode(), b)
	}
	sum := sha256.Sum256([]byte(b))
	if !strings.Contains(out, "{sha256}"+hex.EncodeToString(sum[:])) && !strings.Contains(out, "[redacted]") {
		a.Errorf("the agent prints no checksum:\n%s", out)
	}
}

// key returns the fingerprint of the key on the agent's disk.
func (a *agent) key() string {
	a.Helper()
	der := a.run("openssl", "pkey", "-in", a.dir+"/var/ssl/private_keys/"+a.name+".pem", "-pubout", "-outform", "DER")
	sum := sha256.Sum256([]byte(der))
	return hex.EncodeToString(sum[:])
}
