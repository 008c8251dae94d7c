package testbed_test

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
)

// pinning signs a token with this pin that asks for TLS, so that the broker is verified by the pin too.
func pinning(t *testing.T, f *testbed.Fleet, fingerprint string) string {
	t.Helper()
	return f.Token(func(c *jwt.Claims) {
		c.Secure = true
		if err := c.SetLimits(jwt.Limits{CA: fingerprint}); err != nil {
			t.Fatal(err)
		}
	})
}

func certificates(t *testing.T, path string) []*x509.Certificate {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := ca.ParseCertificates(b)
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

// issuer returns the common name of the issuer of the agent's certificate, and how many roots the agent knows.
func issuer(t *testing.T, a *testbed.Agent) (name string, roots int) {
	t.Helper()
	for _, c := range certificates(t, filepath.Join(a.Dir, "ca.pem")) {
		if !wire.SelfSigned(c) {
			t.Errorf("%s: %q in ca.pem is no root", a.Identity, c.Subject)
		}
		roots++
	}
	return certificates(t, filepath.Join(a.Dir, "certificate.pem"))[0].Issuer.CommonName, roots
}

// connections counts connections of agents to the fleet.
func connections(f *testbed.Fleet) int {
	return strings.Count(f.Log(), `"msg":"connected to the fleet"`)
}

// TestAFleetSurvivesAChangeOfItsAuthority changes the authority under a fleet of real agents that know only the old
// root: they return; new nodes enroll with tokens that pin the old root and the new one; and after everything of the
// old authority has expired, agents that know only the old root still return.
func TestAFleetSurvivesAChangeOfItsAuthority(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	old := f.Daemon().CAFingerprint()
	before := []*testbed.Agent{f.Agent("old1.example.net", pinning(t, f, old)),
		f.Agent("old2.example.net", pinning(t, f, old))}
	f.WaitProvisioned(before...)
	f.Eventually("the agents are in the fleet", func() bool { return connections(f) >= len(before) })
	seen := connections(f)

	next := f.Roll()
	if next == old {
		t.Fatal("the authority is the same")
	}
	f.Eventually("agents that know only the old root are back", func() bool {
		return connections(f) >= seen+len(before)
	})
	for _, a := range before {
		if name, roots := issuer(t, a); name != "fleet.test issuing CA" || roots != 1 {
			t.Errorf("%s: certificate by %q, %d roots: it should not have changed", a.Identity, name, roots)
		}
	}
	after := []*testbed.Agent{f.Agent("new1.example.net", pinning(t, f, old)),
		f.Agent("new2.example.net", pinning(t, f, next)), f.Agent("new3.example.net", f.Token(nil))}
	f.WaitProvisioned(after...)
	for _, a := range after {
		if name, roots := issuer(t, a); name != "fleet.test issuing CA 2" || roots != 2 {
			t.Errorf("%s: certificate by %q, %d roots, want both roots", a.Identity, name, roots)
		}
	}
	f.Eventually("new agents are in the fleet", func() bool { return connections(f) >= seen+len(before)+len(after) })
	f.Check()
	f.Eventually("the old authority is counted", func() bool {
		return strings.Contains(f.Log(), `"previous certificate authority is still needed"`)
	})

	// An old node is asked to enroll again: it keeps its live certificate, and learns the new root.
	serial := f.Record(before[0].Identity).Current.Serial
	before[0].Stop()
	if err := os.WriteFile(filepath.Join(before[0].Dir, "server.conf"), []byte("provision = true\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	before[0].Start()
	f.Eventually("the node has learned of the new root", func() bool {
		return len(certificates(t, filepath.Join(before[0].Dir, "ca.pem"))) == 2
	})
	f.WaitProvisioned(before[0])
	if got := f.Record(before[0].Identity).Current.Serial; got != serial {
		t.Errorf("certificate %s, want the live one, %s", got, serial)
	}

	// Everything that the old authority issued has expired.
	for _, a := range append(before, after...) {
		a.Stop()
	}
	f.Clock.Advance(31 * 24 * time.Hour)
	for _, a := range append(before, after[0]) {
		if err := os.WriteFile(a.Token, []byte(pinning(t, f, old)), 0o600); err != nil {
			t.Fatal(err)
		}
		was := f.Record(a.Identity).Current.Serial
		a.Start()
		f.Eventually(a.Identity+" has a new certificate ("+f.Cause(a.Identity)+")", func() bool {
			r := f.Record(a.Identity)
			return r.Current.Serial != was && r.Next == nil
		})
		f.WaitProvisioned(a)
		if r := f.Record(a.Identity); r.Decision.Reason != provisioner.ReasonContinue {
			t.Errorf("%s: enrolled by reason %s, want %s", a.Identity, r.Decision.Reason, provisioner.ReasonContinue)
		}
		if name, roots := issuer(t, a); name != "fleet.test issuing CA 2" || roots != 2 {
			t.Errorf("%s: certificate by %q, %d roots, want both", a.Identity, name, roots)
		}
	}
	f.Check()
}

func parse(t *testing.T, text string) []*x509.Certificate {
	t.Helper()
	certs, err := ca.ParseCertificates([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

// authorityAt returns the authority in a directory of the setup, as any holder of its issuing key could use it.
func authorityAt(t *testing.T, f *testbed.Fleet, dir string) *ca.Authority {
	t.Helper()
	key, err := jwt.ParsePrivateKey([]byte(f.Read(dir+"/issuing-key.pem")), nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := ca.New(ca.Config{
		Root:        parse(t, f.Read(dir+"/root.pem"))[0],
		Issuing:     parse(t, f.Read(dir+"/issuing.pem"))[0],
		Key:         key,
		TrustDomain: "fleet.test",
		Now:         f.Clock.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// alert is the client's error if its certificate's authority is unknown.
const alert = "remote error: tls: "

// connect connects with a certificate by TLS 1.2, where the server checks it before the handshake ends.
func connect(t *testing.T, f *testbed.Fleet, chain string, key crypto.Signer) error {
	t.Helper()
	certificate := tls.Certificate{PrivateKey: key}
	for rest := []byte(chain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate.Certificate = append(certificate.Certificate, block.Bytes)
	}
	name := wire.NewID()
	nc, err := nats.Connect(f.URL(), nats.Name(name), nats.CustomInboxPrefix(wire.InboxPrefix(name)),
		nats.NoReconnect(), nats.Timeout(10*time.Second),
		nats.Secure(&tls.Config{
			InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12,
			// Even if the server names other authorities.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &certificate, nil
			},
		}))
	if err == nil {
		nc.Close()
	}
	return err
}

// TestTheOldAuthorityIsDropped moves the only node of an old authority to the new one at once. After its removal from
// the configuration nothing of the old authority is accepted, not even certificates made with its key.
func TestTheOldAuthorityIsDropped(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	first := f.Enroll(n)
	f.Apply(n, first)
	f.Roll()
	if again := f.Enroll(n); again.Certificate != first.Certificate || len(parse(t, again.CA)) != 4 {
		t.Errorf("a live certificate of the old authority: enrolled anew, or %d certificates in CA, want two roots "+
			"and their words for each other", len(parse(t, again.CA)))
	}
	admitted := func(n *simnode.Node, e *wire.Enrolled) bool {
		t.Helper()
		nc, err := n.DialFleet(f.URL(), e)
		if err != nil {
			return false
		}
		err = nc.Flush()
		nc.Close()
		return err == nil
	}
	if !admitted(n, first) {
		t.Error("a node of the old authority is not admitted before it has moved")
	}
	// Not on record, but accepted by the handshake.
	forged, err := authorityAt(t, f, "ca").Issue(ca.Request{Role: wire.RoleNode, Name: "web2.example.net",
		PublicKey: n.Key.Public()})
	if err != nil {
		t.Fatal(err)
	}
	if err := connect(t, f, forged.Chain, n.Key); err == nil || strings.Contains(err.Error(), alert) {
		t.Errorf("a certificate of the old authority that is on no record: %v, want a refusal after the handshake", err)
	}

	moved := f.Node(n.Identity)
	request := moved.Request()
	vouch(t, n.Key, request)
	nc := f.Dial(moved.Token)
	reply, err := simnode.Enroll(f.Context(), nc, request)
	if err != nil || reply.Enrolled == nil {
		t.Fatalf("enroll with another key: %v, %+v", err, reply)
	}
	f.Apply(moved, reply.Enrolled)
	if admitted(n, first) {
		t.Error("the superseded certificate of the old authority is admitted")
	}
	// The next start says that the lines can go; without them the handshake fails.
	f.Stop()
	f.Start()
	f.Eventually("the log says that the old authority can go", func() bool {
		return strings.Contains(f.Log(), `"previous certificate authority has no live certificate"`)
	})
	f.Check()
	f.Stop()
	withoutPrevious(f)
	f.Start()
	if err := connect(t, f, forged.Chain, n.Key); err == nil || !strings.Contains(err.Error(), alert) {
		t.Errorf("a certificate of the old authority: %v, want the end of the handshake", err)
	}
	if !admitted(moved, reply.Enrolled) {
		t.Error("without the lines, the node that has moved is not admitted")
	}
	f.Check()
}

// withoutPrevious removes the previous authority from provisioner.yaml.
func withoutPrevious(f *testbed.Fleet) {
	text := f.Read("provisioner.yaml")
	const last = "cross: ca-2/cross.pem\n"
	from, to := strings.Index(text, "  previous:\n"), strings.Index(text, last)+len(last)
	f.Write("provisioner.yaml", text[:from]+text[to:])
}

// vouch signs the request by an earlier key of the identity.
func vouch(t *testing.T, key crypto.Signer, r *wire.EnrollRequest) {
	t.Helper()
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	signature, err := wire.Sign(key, wire.ContinuityDigest(r.ID, r.Identity, r.CSR))
	if err != nil {
		t.Fatal(err)
	}
	r.Continuity = &wire.Continuity{PublicKey: spki, Signature: signature}
}

// Shortly before the end of the issuing certificate.
func TestNoCertificateOutlivesItsIssuer(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	end := parse(t, f.Read("ca/issuing.pem"))[0].NotAfter
	f.Clock.Advance(end.Add(-48 * time.Hour).Sub(f.Clock.Now()))
	f.Enroll(f.Node("web1.example.net"))
	if got := f.Record("web1.example.net").Next.NotAfter; !got.Equal(end) {
		t.Errorf("certificate ends %v, its issuer %v", got, end)
	}
	f.Check()
}

// Agents that know only the old root renew as time passes, and the old authority is removed while they run.
func TestAFleetRenewsIntoTheNewAuthority(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := pinning(t, f, f.Daemon().CAFingerprint())
	agents := []*testbed.Agent{
		f.Agent("web1.example.net", token, testbed.WatchOften), f.Agent("web2.example.net", token, testbed.WatchOften),
		f.Agent("web3.example.net", token, testbed.WatchOften),
	}
	f.WaitProvisioned(agents...)
	before := map[*testbed.Agent]string{}
	for _, a := range agents {
		before[a] = f.Record(a.Identity).Current.Serial
	}
	f.Roll()
	if n := len(parse(t, f.Daemon().RootsPEM())); n != 2 {
		t.Fatalf("%d roots while live certificates are the old authority's, want 2", n)
	}
	f.Clock.Advance(25 * 24 * time.Hour) // beyond two thirds of 30 days and all jitter
	renewed(f, before)
	for _, a := range agents {
		if name, _ := issuer(t, a); name != "fleet.test issuing CA 2" {
			t.Errorf("%s: certificate by %q", a.Identity, name)
		}
		if r := f.Record(a.Identity); r.Decision.Reason != provisioner.ReasonRenew {
			t.Errorf("%s: by reason %s, want %s", a.Identity, r.Decision.Reason, provisioner.ReasonRenew)
		}
	}
	// They still reach it without the old authority.
	seen := connections(f)
	f.Stop()
	withoutPrevious(f)
	f.Start()
	f.Eventually("the agents are back", func() bool { return connections(f) >= seen+len(agents) })
	f.Check()
}
