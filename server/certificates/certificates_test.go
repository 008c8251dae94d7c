package certificates_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/conffile"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server/advice"
	"muster/server/certificates"
	"muster/server/link"
	"muster/server/trust"
)

const (
	identity = "web1.example.net"
	patience = 10 * time.Second
	life     = 24 * time.Hour
)

// A node is a machine with its own directories, and a provisioner for it.
type node struct {
	tb        testing.TB
	dir       string
	cfg       certificates.Config
	authority *ca.Authority
	log       *lockedBuffer

	mu     sync.Mutex                           // guards the fields below
	ahead  time.Duration                        // the node's clock and the provisioner's
	answer func(*wire.CertificateRequest) error // nil: issue
	spoil  func(*wire.ServiceCertificate)       // nil: not at all
	given  map[string]*given                    // by key
	asks   []*wire.CertificateRequest
	facts  string

	due bool // the test expects a new certificate
}

// given is what the provisioner has issued for one key.
type given struct {
	names  string
	at     time.Time
	answer *wire.ServiceCertificate
	count  int // in one life of the key's certificate
}

var authority = sync.OnceValues(func() (*ca.Generated, error) {
	return ca.Generate("", time.Now())
})

func newNode(tb testing.TB) *node {
	tb.Helper()
	made, err := authority()
	if err != nil {
		tb.Fatal(err)
	}
	n := &node{tb: tb, dir: tb.TempDir(), log: &lockedBuffer{}, given: make(map[string]*given)}
	if n.dir, err = filepath.EvalSymlinks(n.dir); err != nil {
		tb.Fatal(err)
	}
	n.authority, err = ca.New(ca.Config{Root: made.Root, Issuing: made.Issuing, Key: made.IssuingKey,
		TrustDomain: "fleet.example.net", Now: n.clock})
	if err != nil {
		tb.Fatal(err)
	}
	for _, dir := range []string{"etc", "etc/certificates.d", "etc/actions.d", "etc/tls", "etc/ssl", "srv"} {
		if err := os.Mkdir(n.path(dir), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	n.cfg = certificates.Config{
		Dir:           n.path("etc"),
		State:         n.path("etc/ssl/certificates"),
		Pushed:        n.path("pushed.json"),
		Protected:     []string{n.path("etc/ssl"), n.path("token.jwt")},
		BackoffMin:    10 * time.Millisecond,
		BackoffMax:    50 * time.Millisecond,
		WatchInterval: 20 * time.Millisecond,
		Clock: func(start time.Time) time.Time {
			if now := n.clock(); now.After(start) {
				return now
			}
			return start
		},
		Random: rand.Float64,
		Step:   func(string) {},
		Log:    slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log:\n%s", n.log)
		}
		if strings.Contains(n.log.String(), "PRIVATE KEY") {
			tb.Error("a private key was logged")
		}
	})
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) clock() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Add(n.ahead)
}

// set changes what the mutex guards.
func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *node) write(name, text string) {
	n.tb.Helper()
	temp := n.path("written")
	err := os.WriteFile(temp, []byte(strings.ReplaceAll(text, "DIR", n.dir)), 0o600)
	if err == nil {
		err = os.Rename(temp, n.path(name))
	}
	if err != nil {
		n.tb.Fatal(err)
	}
}

func (n *node) read(name string) string {
	n.tb.Helper()
	b, err := os.ReadFile(n.path(name))
	if err != nil {
		n.tb.Fatal(err)
	}
	return string(b)
}

// web is a specification with all files.
const web = `dns_names: ["svc.{{.identity}}"]
files:
  key: {path: DIR/etc/tls/web.key}
  certificate: {path: DIR/etc/tls/web.crt}
  chain: {path: DIR/etc/tls/web-chain.pem}
  ca: {path: DIR/srv/ca.pem, mode: 0640}
  combined: {path: DIR/srv/web.pem, order: [key, certificate, chain]}
`

func (n *node) exists(name string) bool { _, err := os.Stat(n.path(name)); return err == nil }

// action defines an action that runs a script.
func (n *node) action(name, script string) {
	n.tb.Helper()
	n.write(name+".sh", "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(n.path(name+".sh"), 0o755); err != nil {
		n.tb.Fatal(err)
	}
	n.write("etc/actions.d/"+name+".yaml", "program: DIR/"+name+".sh\n")
}

// parse reads a specification as it is pushed.
func parse(t *testing.T, text string) (spec wire.Specification) {
	t.Helper()
	b, err := conffile.ToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(b, &spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func (n *node) specify(name, text string) {
	n.tb.Helper()
	n.write("etc/certificates.d/"+name+".yaml", text)
}

// start starts a manager, connected.
func (n *node) start() *manager {
	n.tb.Helper()
	m := &manager{Manager: certificates.New(n.cfg), done: make(chan struct{})}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(n.tb.Context())
	n.connect(m, identity)
	go func() {
		defer close(m.done) // also if a test ends this goroutine
		m.Run(ctx)
	}()
	n.tb.Cleanup(m.stop)
	return m
}

func (n *node) connect(m *manager, name string) {
	m.Connect(&certificates.Node{Identity: name, Ask: n.ask, Facts: func() json.RawMessage {
		n.mu.Lock()
		defer n.mu.Unlock()
		return json.RawMessage(n.facts)
	}})
}

// push writes the specifications of the decision in force.
func (n *node) push(pushed map[string]wire.Specification) {
	n.tb.Helper()
	b, err := json.Marshal(pushed)
	if err != nil {
		n.tb.Fatal(err)
	}
	n.write("pushed.json", string(b))
}

type manager struct {
	*certificates.Manager
	cancel context.CancelFunc
	done   chan struct{}
}

func (m *manager) stop() {
	m.cancel()
	<-m.done
}

func (n *node) order(m *manager, o certificates.Order) error {
	n.tb.Helper()
	ctx, cancel := context.WithTimeout(n.tb.Context(), patience)
	defer cancel()
	_, err := m.Do(ctx, o)
	return err
}

// ask is the provisioner.
func (n *node) ask(_ context.Context, r *wire.CertificateRequest) (*wire.ServiceCertificate, error) {
	b, err := wire.Encode(r)
	if err == nil {
		_, err = wire.DecodeCertificate(b)
	}
	if err != nil {
		n.tb.Errorf("request: %v", err)
		return nil, err
	}
	now := n.clock()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asks = append(n.asks, r)
	if n.answer != nil {
		if err := n.answer(r); err != nil {
			return nil, err
		}
	}
	if r.Verb != wire.CertificateIssue {
		return &wire.ServiceCertificate{Name: r.Name}, nil
	}
	csr, err := x509.ParseCertificateRequest(r.CSR)
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		n.tb.Errorf("certificate request: %v", err)
		return nil, err
	}
	key := fmt.Sprintf("%x", sha256.Sum256(csr.RawSubjectPublicKeyInfo))
	names := fmt.Sprint(csr.DNSNames, csr.IPAddresses, csr.URIs)
	g := n.given[key]
	if g != nil && g.names == names && now.Before(g.at.Add(life*2/3)) {
		return n.spoiled(g.answer), nil
	}
	request := ca.Request{Role: wire.RoleService, Name: r.Identity + "/" + r.Name, PublicKey: csr.PublicKey, TTL: life,
		DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses, ServerAuth: true}
	n.mu.Unlock() // the authority asks for the time
	cert, err := n.authority.Issue(request)
	n.mu.Lock()
	if err != nil {
		return nil, refusal(wire.CodeCertificateFailed, 0)
	}
	count := 1
	if g != nil && now.Before(g.at.Add(life*2/3)) {
		count = g.count + 1
	}
	n.given[key] = &given{names: names, at: now, count: count, answer: &wire.ServiceCertificate{Name: r.Name,
		Serial: cert.Serial, Certificate: cert.Chain, CA: n.authority.RootsPEM()}}
	return n.spoiled(n.given[key].answer), nil
}

func (n *node) spoiled(c *wire.ServiceCertificate) *wire.ServiceCertificate {
	spoiled := *c
	if n.spoil != nil {
		n.spoil(&spoiled)
	}
	return &spoiled
}

func refusal(code wire.Code, wait time.Duration) error {
	return advice.New(link.Refusal{Refusal: &wire.Refusal{Code: code, RetryAfter: wait.Milliseconds()}},
		wire.MeaningOf(code).Remedy)
}

// requests returns what the provisioner was asked.
func (n *node) requests(verb wire.CertificateVerb) (list []*wire.CertificateRequest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.asks {
		if r.Verb == verb {
			list = append(list, r)
		}
	}
	return list
}

func (n *node) status(name string) certificates.Status {
	n.tb.Helper()
	all, _ := certificates.New(n.cfg).Statuses()
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	return certificates.Status{}
}

// await waits until the status of a name is as wanted.
func (n *node) await(name, what string, want func(certificates.Status) bool) certificates.Status {
	n.tb.Helper()
	var s certificates.Status
	await(n.tb, func() bool { s = n.status(name); return want(s) }, func() string {
		return fmt.Sprintf("%s is not %s: %+v", name, what, s)
	})
	return s
}

func await(tb testing.TB, is func() bool, not func() string) {
	tb.Helper()
	for end := time.Now().Add(patience); !is(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatal(not())
		}
	}
}

func in(state string) func(certificates.Status) bool {
	return func(s certificates.Status) bool { return s.State == state && !s.Stuck }
}

func stuck(s certificates.Status) bool { return s.Stuck }

// checkFiles checks that all files of web belong together, and returns the serial of their certificate.
func (n *node) checkFiles() string {
	n.tb.Helper()
	key, err := keyfile.Parse([]byte(n.read("etc/tls/web.key")), nil)
	if err != nil {
		n.tb.Fatal(err)
	}
	crt, chain, roots := n.read("etc/tls/web.crt"), n.read("etc/tls/web-chain.pem"), n.read("srv/ca.pem")
	leaf, err := trust.ParseCertificates(crt)
	if err != nil {
		n.tb.Fatal(err)
	}
	if !wire.SamePublicKey(leaf[0].PublicKey, key.(crypto.Signer).Public()) {
		n.tb.Error("the key does not fit the certificate")
	}
	if n.read("srv/web.pem") != n.read("etc/tls/web.key")+crt+chain {
		n.tb.Error("the combined file has not the same key, certificate and chain")
	}
	root, others := x509.NewCertPool(), x509.NewCertPool()
	root.AppendCertsFromPEM([]byte(roots))
	others.AppendCertsFromPEM([]byte(chain))
	_, err = leaf[0].Verify(x509.VerifyOptions{Roots: root, Intermediates: others, CurrentTime: n.clock(),
		DNSName: "svc." + identity})
	if err != nil {
		n.tb.Error(err)
	}
	return ca.Serial(leaf[0])
}

// checkTidy checks that nothing incomplete stays, and that no key was certified twice. A running agent may just write.
func (n *node) checkTidy() {
	n.tb.Helper()
	var left []string
	await(n.tb, func() bool {
		left = nil
		for _, dir := range []string{"etc/tls", "srv", "etc/ssl/certificates"} {
			entries, err := os.ReadDir(n.path(dir))
			if err != nil {
				n.tb.Fatal(err)
			}
			for _, e := range entries {
				if strings.Contains(e.Name(), "new") {
					left = append(left, dir+"/"+e.Name())
				}
			}
		}
		return len(left) == 0
	}, func() string { return fmt.Sprintf("%s are left", left) })
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, g := range n.given {
		if g.count != 1 {
			n.tb.Errorf("key %.8s was certified %d times", key, g.count)
		}
	}
}

func (n *node) pass(d time.Duration) { n.set(func() { n.ahead += d }) }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A specification becomes files, and they are renewed with a new key after two thirds of their life.
func TestLifeOfACertificate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.specify("web", web)
	n.start()
	s := n.await("web", "current", in(certificates.Current))
	first := n.checkFiles()
	if s.Serial != first || s.Source != "file" || !slices.Equal(s.Names, []string{"svc." + identity}) ||
		s.Files["key"] != n.path("etc/tls/web.key") {
		t.Errorf("status = %+v", s)
	}
	issued := n.clock()
	if from, to := issued.Add(life*65/100), issued.Add(life*76/100); s.RenewAt.Before(from) || s.RenewAt.After(to) {
		t.Errorf("renewal at %v, want after two thirds of %v from %v", s.RenewAt, life, issued)
	}
	for name, want := range map[string]os.FileMode{"etc/tls/web.key": 0o600, "etc/tls/web.crt": 0o644,
		"srv/ca.pem": 0o640, "srv/web.pem": 0o600} {
		if info, err := os.Stat(n.path(name)); err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	key := n.read("etc/tls/web.key")
	n.pass(life * 76 / 100)
	n.await("web", "renewed", func(s certificates.Status) bool { return s.Serial != first && s.State == certificates.Current })
	if second := n.checkFiles(); second == first || n.read("etc/tls/web.key") == key {
		t.Error("not renewed with a new key")
	}
	asks := n.requests(wire.CertificateIssue)
	if len(asks) != 2 || asks[0].Replaces != "" || asks[1].Replaces != first {
		t.Errorf("asked %d times: %+v", len(asks), asks)
	}
	n.checkTidy()
	await(t, func() bool { return len(n.requests(wire.CertificateReport)) > 0 }, func() string { return "not reported" })
	for _, r := range n.requests(wire.CertificateReport) {
		if r.Report.State != certificates.Current || r.Report.Stuck {
			t.Errorf("reported %+v", r.Report)
		}
	}
}
