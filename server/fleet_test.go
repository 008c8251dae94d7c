package server_test

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
	"muster/server"
)

const (
	patience    = 30 * time.Second // limit for expected events
	trustDomain = "fleet.example.net"
	secret      = "toomanysecrets"
)

// A fleet is a broker and a small provisioner that enrolls every node, unless the test sets another answer.
type fleet struct {
	tb        testing.TB
	authority *ca.Authority
	made      *ca.Generated
	serverTLS *tls.Config
	port      int
	plain     bool // the broker accepts plain connections
	log       *lockedBuffer
	early     *earlyPings // nil: connections are admitted before the broker sends a PING

	subscriptions []*nats.Subscription // the provisioner's

	mu          sync.Mutex // guards the fields below
	broker      *natsserver.Server
	admit       func(token string, cert *x509.Certificate) bool
	opener      *seal.Opener                          // nil: opens nothing
	sealers     map[*nats.Msg]*seal.ReplySealer       // of opened messages
	inPlain     []*wire.Reply                         // sent before each sealed reply
	connects    []presented                           // what connections presented
	sessions    []string                              // of opened enroll requests, in order
	enroll      func(*wire.EnrollRequest) *wire.Reply // nil reply: no answer
	applied     func(*wire.Applied) *wire.Reply
	renew       func(*wire.RenewRequest) *wire.Reply // nil reply: no answer
	enrolls     []*wire.EnrollRequest
	confirms    []*wire.Applied
	hears       func(*wire.Applied) *wire.Reply // an unusable reply
	complaints  []*wire.Applied
	renews      []*wire.RenewRequest
	given       map[string]*wire.Enrolled // by identity and certificate request
	renewedLife time.Duration             // of certificates renewed; 0: 80 days
	messages    []*nats.Msg               // events and registration data
	ttl         time.Duration
	changed     chan struct{} // closed and replaced at each change of the above
}

// presented is what a connection presented.
type presented struct {
	natsserver.ClientOpts
	seal seal.Presented
}

func newFleet(tb testing.TB) *fleet {
	tb.Helper()
	made, err := ca.Generate("", time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	authority, err := ca.New(ca.Config{
		Root:        made.Root,
		Issuing:     made.Issuing,
		Key:         made.IssuingKey,
		TrustDomain: trustDomain,
	})
	if err != nil {
		tb.Fatal(err)
	}
	f := &fleet{
		tb:        tb,
		made:      made,
		authority: authority,
		given:     make(map[string]*wire.Enrolled),
		changed:   make(chan struct{}),
		log:       &lockedBuffer{},
		plain:     true,
	}
	f.serverTLS = f.brokerTLS(wire.RoleBroker)
	f.start()
	tb.Cleanup(f.stop)
	return f
}

// brokerTLS returns a broker's TLS with a certificate of this role.
func (f *fleet) brokerTLS(role wire.Role) *tls.Config {
	f.tb.Helper()
	r := ca.Request{Role: role, Name: "broker1.example.net"}
	if role == wire.RoleBroker {
		r.DNSNames, r.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	} else {
		r.DNSNames, r.ServerAuth = []string{"localhost"}, true
	}
	return &tls.Config{Certificates: []tls.Certificate{f.certificate(r)}, ClientAuth: tls.VerifyClientCertIfGiven,
		ClientCAs: f.authority.Roots(), MinVersion: tls.VersionTLS12}
}

// certificate returns a certificate for a new key, with its chain and the roots.
func (f *fleet) certificate(r ca.Request) tls.Certificate {
	f.tb.Helper()
	_, key, _ := ed25519.GenerateKey(nil)
	r.PublicKey = key.Public()
	cert, err := f.authority.Issue(r)
	if err != nil {
		f.tb.Fatal(err)
	}
	chain := tls.Certificate{PrivateKey: key}
	for rest := []byte(cert.Chain + f.authority.RootsPEM()); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		chain.Certificate = append(chain.Certificate, block.Bytes)
	}
	return chain
}

// start starts the broker on its former port.
func (f *fleet) start() {
	f.tb.Helper()
	port := f.port
	if port == 0 {
		port = -1
	}
	opts := &natsserver.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, AuthTimeout: 5,
		TLSConfig: f.serverTLS, TLSTimeout: 5, AllowNonTLS: f.plain, MaxControlLine: 16384,
		CustomClientAuthentication: f, AlwaysEnableNonce: true}
	var ns *natsserver.Server
	for began := time.Now(); ; { // another connection may leave from our port meanwhile
		var err error
		if ns, err = natsserver.NewServer(opts.Clone()); err != nil {
			f.tb.Fatal(err)
		}
		if f.early != nil {
			ns.SetLoggerV2(f.early, false, true, false)
		}
		ns.Start()
		if ns.Addr() != nil {
			break
		}
		ns.Shutdown()
		if time.Since(began) > patience {
			f.tb.Fatalf("port %d stays taken", port)
		}
		<-time.After(10 * time.Millisecond)
	}
	if !ns.ReadyForConnections(patience) {
		f.tb.Fatal("broker does not start")
	}
	f.port = ns.Addr().(*net.TCPAddr).Port
	nc, err := nats.Connect("", nats.InProcessServer(ns), nats.Token("provisioner"), nats.Timeout(patience),
		nats.Secure(&tls.Config{InsecureSkipVerify: true}))
	if err != nil {
		f.tb.Fatal(err)
	}
	for subject, handle := range map[string]nats.MsgHandler{
		wire.SubjectEnroll:   f.onEnroll,
		wire.SubjectApplied:  f.onApplied,
		wire.SubjectRenew:    f.onRenew,
		wire.AllNodeEvents:   f.onMessage,
		wire.AllRegistration: f.onMessage,
	} {
		sub, err := nc.Subscribe(subject, handle)
		if err != nil {
			f.tb.Fatal(err)
		}
		f.subscriptions = append(f.subscriptions, sub)
	}
	if err := nc.Flush(); err != nil {
		f.tb.Fatal(err)
	}
	f.mu.Lock()
	f.broker = ns
	f.mu.Unlock()
}

// stop stops the broker, and everything on it.
func (f *fleet) stop() {
	f.mu.Lock()
	ns := f.broker
	f.mu.Unlock()
	ns.Shutdown()
	ns.WaitForShutdown()
}

// stopForGood is stop, but keeps the port until the test ends, so that no broker of another test takes it.
func (f *fleet) stopForGood() {
	f.tb.Helper()
	f.stop()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.tb.Cleanup(func() { _ = unix.Close(fd) })
	// Ended connections may still have the port, which this allows; a search for a free port must not get it.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		f.tb.Fatal(err)
	}
	// Another test may have it for a moment.
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for unix.Bind(fd, &unix.SockaddrInet4{Port: f.port, Addr: [4]byte{127, 0, 0, 1}}) != nil {
		select {
		case <-tick.C:
		case <-deadline.C:
			f.tb.Fatalf("waited %v for port %d", patience, f.port)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0); err != nil {
		f.tb.Fatal(err)
	}
}

func (f *fleet) url() string {
	return net.JoinHostPort("127.0.0.1", itoa(f.port))
}

// Check implements the broker's authentication.
func (f *fleet) Check(c natsserver.ClientAuthentication) bool {
	token := c.GetOpts().Token
	if token == "provisioner" {
		return true
	}
	o := *c.GetOpts()
	p := seal.Presented{Token: o.Token, Name: o.Nkey, Signature: o.Sig, Nonce: string(c.GetNonce())}
	f.set(func() { f.connects = append(f.connects, presented{o, p}) })
	if f.early != nil {
		f.early.wait(c.RemoteAddress().String())
	}
	var cert *x509.Certificate
	if cs := c.GetTLSConnectionState(); cs != nil && len(cs.PeerCertificates) > 0 {
		cert = cs.PeerCertificates[0]
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.admit != nil {
		return f.admit(token, cert)
	}
	return true
}

// set changes the fleet's behavior.
func (f *fleet) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// note records something and wakes those that wait.
func (f *fleet) note(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// await waits until ok is true. It calls ok after every change, without the lock, which ok may take.
func (f *fleet) await(what string, ok func() bool) {
	f.tb.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		f.mu.Lock()
		changed := f.changed // before ok: a later change closes it
		f.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			f.tb.Fatalf("waited %v for: %s; log:\n%s", patience, what, f.log.String())
		}
	}
}

func (f *fleet) onEnroll(m *nats.Msg) {
	r, err := wire.DecodeEnroll(f.opened(m))
	if err != nil {
		f.tb.Errorf("enroll request: %v", err)
		return
	}
	f.note(func() { f.enrolls = append(f.enrolls, r) })
	f.mu.Lock()
	answer := f.enroll
	f.mu.Unlock()
	if answer == nil {
		answer = f.issue
	}
	f.reply(m, r.Identity, answer(r))
}

func (f *fleet) onApplied(m *nats.Msg) {
	a, err := wire.DecodeApplied(f.opened(m))
	if err != nil {
		f.tb.Errorf("applied: %v", err)
		return
	}
	if _, _, unusable := a.Unusable(); unusable {
		f.onComplaint(m, a)
		return
	}
	f.mu.Lock()
	answer := f.applied
	f.mu.Unlock()
	if answer == nil {
		answer = accept
	}
	f.note(func() { f.confirms = append(f.confirms, a) })
	f.reply(m, a.Identity, answer(a))
}

// requests returns the enroll requests so far.
func (f *fleet) requests() []*wire.EnrollRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.enrolls)
}

// confirmations returns the confirmations so far.
func (f *fleet) confirmations() []*wire.Applied {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.confirms)
}

func (f *fleet) onMessage(m *nats.Msg) { f.note(func() { f.messages = append(f.messages, m) }) }

// received returns the events and the registration data so far.
func (f *fleet) received() []*nats.Msg {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.messages)
}

func (f *fleet) reply(m *nats.Msg, identity string, r *wire.Reply) {
	if f.replySealed(m, r) || r == nil {
		return
	}
	b, err := wire.Encode(f.signed(r, identity, m.Data))
	if err != nil {
		f.tb.Error(err)
		return
	}
	_ = m.Respond(b) // the node may be gone
}

// signed returns r with a provisioner's signature, if it needs one and has none.
func (f *fleet) signed(r *wire.Reply, identity string, request []byte) *wire.Reply {
	if !r.Signed() || r.Provisioner != nil {
		return r
	}
	clone := *r
	provisioner := f.certificate(ca.Request{Role: wire.RoleProvisioner, Name: "provisioner1", TTL: 90 * day})
	clone.Provisioner = provisioner.Certificate
	var err error
	clone.Signature, err = wire.Sign(provisioner.PrivateKey.(crypto.Signer),
		wire.ReplyDigest(&clone, identity, request))
	if err != nil {
		f.tb.Error(err)
	}
	return &clone
}

func accept(a *wire.Applied) *wire.Reply {
	return &wire.Reply{ID: a.ID, Installation: "test", Applied: &wire.Accepted{Serial: a.Serial}}
}

// issue answers a request with a certificate and a configuration.
func (f *fleet) issue(r *wire.EnrollRequest) *wire.Reply {
	return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: f.enrolled(r, nil)}
}

// enrolled makes an enrolled node's reply; edit changes it before the digest is made.
func (f *fleet) enrolled(r *wire.EnrollRequest, edit func(*ca.Request, *wire.Enrolled)) *wire.Enrolled {
	csr, err := ca.ParseCSR(r.CSR)
	if err != nil {
		f.tb.Errorf("request of %s: %v", r.Identity, err)
		return nil
	}
	f.mu.Lock()
	request := ca.Request{Role: wire.RoleNode, Name: r.Identity, PublicKey: csr.PublicKey, TTL: f.ttl}
	f.mu.Unlock()
	e := &wire.Enrolled{CA: f.authority.RootsPEM(), Files: wire.Files{
		Configuration:  map[string]string{"brokers": f.url(), "identity": r.Identity, "loglevel": "info"},
		ActionPolicies: map[string]string{"rpcutil": "policy default allow\n"},
		OPAPolicies:    map[string]string{"main": "package main\n"},
	}}
	if edit != nil {
		edit(&request, e)
	}
	cert, err := f.authority.Issue(request)
	if err != nil {
		f.tb.Error(err)
		return nil
	}
	e.Serial, e.Certificate = cert.Serial, cert.Chain
	e.Digest = wire.Digest(e.Certificate, e.Files)
	return e
}

// refuse answers every request with a code.
func refuse(code wire.Code, after time.Duration) func(*wire.EnrollRequest) *wire.Reply {
	return func(r *wire.EnrollRequest) *wire.Reply {
		m := wire.MeaningOf(code)
		return &wire.Reply{ID: r.ID, Installation: "test",
			Refusal: &wire.Refusal{Code: code, Message: m.Public, Remedy: m.Remedy, RetryAfter: after.Milliseconds()}}
	}
}

// client returns a connection to the broker for the test itself.
func (f *fleet) client(t *testing.T, token string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(f.url(), nats.Token(token), nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// limits returns limits with a pinned authority and a seal key.
func limits(ca, seal string) jwt.Limits { return jwt.Limits{CA: ca, Seal: seal} }

// claims returns the claims of a token for the fleet.
func (f *fleet) claims() jwt.Claims {
	return jwt.Claims{
		Token:   secret,
		Brokers: f.url(),
		Default: true,
		Purpose: jwt.Purpose,
		Subject: jwt.Purpose,
		JTI:     "t1",
	}
}

// writeToken signs claims and writes the token to path.
func writeToken(tb testing.TB, path string, c jwt.Claims) string {
	tb.Helper()
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", ed25519.SeedSize)))
	text, err := jwt.Sign(key, c)
	if err != nil {
		tb.Fatal(err)
	}
	writeFile(tb, path, text+"\n")
	return text
}

func writeFile(tb testing.TB, path, text string) {
	tb.Helper()
	// By rename, so that no agent reads half of it.
	temp := path + ".temp"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		tb.Fatal(err)
	}
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// node returns the configuration of an agent with a token and its own directory. Its waits are short, except for
// replies: a late one on a stalled machine would make it ask twice. Tests without replies shorten it.
func (f *fleet) node(identity string) server.Config {
	f.tb.Helper()
	dir := f.tb.TempDir()
	cfg := server.Config{
		TokenFile:      filepath.Join(dir, "provisioning.jwt"),
		ConfFile:       filepath.Join(dir, "etc", "server.conf"),
		SSLDir:         filepath.Join(dir, "etc", "ssl"),
		Identity:       identity,
		BackoffMin:     5 * time.Millisecond,
		BackoffMax:     50 * time.Millisecond,
		RequestTimeout: patience,
		WatchInterval:  20 * time.Millisecond,
		Version:        "1.2.3",
		Log:            slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	writeToken(f.tb, cfg.TokenFile, f.claims())
	return cfg
}

// cloudEvent is the part of a lifecycle event that tests read.
type cloudEvent struct {
	SpecVersion, ID, Source, Type, Subject, Time, DataContentType string
	Data                                                          struct {
		Identity, Version, Boot, Mode, Serial,
		Expires, Fault string
	}
}

// lifecycle returns the fleet's lifecycle events of one type, so far.
func (f *fleet) lifecycle(typ string) []cloudEvent {
	var list []cloudEvent
	for _, m := range f.received() {
		if strings.HasSuffix(m.Subject, "."+typ) {
			var e cloudEvent
			if err := json.Unmarshal(m.Data, &e); err != nil {
				f.tb.Errorf("event %q: %v", m.Data, err)
			}
			list = append(list, e)
		}
	}
	return list
}

// registrations returns the registration data so far.
func (f *fleet) registrations() []*nats.Msg {
	var list []*nats.Msg
	for _, m := range f.received() {
		if strings.HasPrefix(m.Subject, strings.TrimSuffix(wire.AllRegistration, "*")) {
			list = append(list, m)
		}
	}
	return list
}

// fleetClient returns the broker's id of the only connection with a certificate.
func (f *fleet) fleetClient(t *testing.T) uint64 {
	t.Helper()
	conns, err := f.broker.Connz(&natsserver.ConnzOptions{Username: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conns.Conns {
		if len(c.TLSPeerCerts) > 0 {
			return c.Cid
		}
	}
	t.Fatal("no node is connected")
	return 0
}

// lockedBuffer collects a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// awaitLog waits until a line of the log has all the texts.
func (f *fleet) awaitLog(texts ...string) {
	f.tb.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if f.countLog(texts...) > 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			f.tb.Fatalf("waited %v for %q in the log:\n%s", patience, texts, f.log.String())
		}
	}
}

// countLog counts the lines of the log, other than debugging ones, that have
// all the texts.
func (f *fleet) countLog(texts ...string) int {
	n := 0
	for line := range strings.Lines(f.log.String()) {
		ok := !strings.Contains(line, "level=DEBUG")
		for _, text := range texts {
			ok = ok && strings.Contains(line, text)
		}
		if ok {
			n++
		}
	}
	return n
}
