package choria_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner"
	"muster/provisioner/choria"
)

const web1 = "web1.example.net"

// newFleet starts a provisioner with a gateway.
func newFleet(t *testing.T, edit func(*daemon.Config)) *testbed.Fleet {
	t.Helper()
	return testbed.New(t, testbed.Options{
		Template: "loglevel = info\n",
		Edit: func(c *daemon.Config) {
			c.Choria.Brokers = []string{"broker.example.net:4222"}
			if edit != nil {
				edit(c)
			}
		},
	})
}

// A server plays a Choria server in provisioning mode, of protocol 1.
type server struct {
	t    *testing.T
	f    *testbed.Fleet
	name string
	conn *nats.Conn

	// answer replaces the answer to an action, if it returns one. May be nil.
	answer func(action string) (status int, data any)

	// before is called with each request before it is answered. May be nil.
	before func(*choria.Request)

	mu     sync.Mutex
	asked  []string          // guarded by mu: actions
	pushed map[string]string // guarded by mu: the configuration, nil until then
	key    *ecdsa.PrivateKey // guarded by mu
}

// connect shows the fleet's token under a name. The connection may be refused.
func connect(f *testbed.Fleet, name string) (*nats.Conn, error) {
	return nats.Connect(f.URL(), nats.Name(name), nats.Token(f.Token(nil)), nats.Timeout(10*time.Second),
		nats.Secure(&tls.Config{InsecureSkipVerify: true}),
		nats.NoReconnect(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}

// start connects a server, which then answers requests.
func start(t *testing.T, f *testbed.Fleet, name string, answer func(action string) (int, any)) *server {
	t.Helper()
	s := &server{t: t, f: f, name: name, answer: answer}
	s.connect()
	return s
}

func (s *server) connect() {
	s.t.Helper()
	s.f.Eventually(s.name+" is admitted", func() (ok bool) {
		var err error
		s.conn, err = connect(s.f, s.name)
		return err == nil
	})
	s.t.Cleanup(s.conn.Close)
	if _, err := s.conn.Subscribe("provisioning.node."+s.name, s.hear); err != nil {
		s.t.Fatal(err)
	}
	if err := s.conn.Publish("choria.lifecycle.event.startup.provision_mode_server", []byte("{}")); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) hear(m *nats.Msg) {
	r, version, err := choria.DecodeRequest(m.Data)
	if err != nil || version != choria.V1 {
		s.t.Errorf("request of version %d: %v", version, err)
		return
	}
	var call struct {
		Action string
		Data   struct{ Token, Config string }
	}
	if err := json.Unmarshal(r.Body, &call); err != nil {
		s.t.Error(err)
	}
	if call.Action != "inventory" && call.Data.Token != testbed.Secret {
		s.t.Errorf("%s came with the secret %q", call.Action, call.Data.Token)
	}
	if s.before != nil {
		s.before(r)
	}
	status, data := 0, any(map[string]string{"message": "done"})
	replaced := false
	if s.answer != nil {
		if n, d := s.answer(call.Action); d != nil {
			status, data, replaced = n, d, true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, call.Action)
	switch {
	case replaced:
	case call.Action == "inventory":
		data = map[string]any{"facts": map[string]string{"os": "linux"}, "version": "0.30.2"}
	case call.Action == "gencsr":
		data = map[string]string{"csr": s.newKey(), "ssldir": "/etc/choria/ssl"}
	case call.Action == "configure":
		s.pushed = nil
		if err := json.Unmarshal([]byte(call.Data.Config), &s.pushed); err != nil {
			s.t.Error(err)
		}
	}
	s.reply(r, status, data)
}

func (s *server) newKey() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Error(err)
	}
	s.key = key
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: s.name}}, key)
	if err != nil {
		s.t.Error(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func (s *server) reply(r *choria.Request, status int, data any) {
	body, err := json.Marshal(map[string]any{"statuscode": status, "statusmsg": "said so", "data": data})
	if err != nil {
		s.t.Error(err)
	}
	b, err := (&choria.Reply{Request: r.ID, Sender: s.name, Agent: r.Agent, Body: body, Time: time.Now()}).Encode(choria.V1)
	if err == nil {
		err = s.conn.Publish(r.ReplyTo, b)
	}
	if err != nil && s.conn.IsConnected() {
		s.t.Error(err)
	}
}

// has reports whether the server was asked for an action.
func (s *server) has(action string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.asked, action)
}

// leave ends the connection as a restart does.
func (s *server) leave() {
	s.mu.Lock()
	s.asked = nil
	s.mu.Unlock()
	s.conn.Close()
}

// provisioned waits until the server was told to restart, and returns its record.
func (s *server) provisioned() *provisioner.Record {
	s.t.Helper()
	s.f.Eventually(s.name+" is provisioned", func() bool { return s.has("restart") })
	return s.f.Record(s.name)
}

// choriaBroker starts the broker of Choria servers in their fleet. The configuration gets a client's login there.
func choriaBroker(t *testing.T) (url string, edit func(*daemon.Config)) {
	t.Helper()
	dir := t.TempDir()
	certify(t, dir, "broker", "localhost")
	certify(t, dir, "ops", "ops.mcollective")
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "broker.pem"), filepath.Join(dir, "broker-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, TLSTimeout: 10,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the broker does not start")
	}
	url = "tls://localhost:" + portOf(t, s.Addr())
	return url, func(c *daemon.Config) {
		c.Choria.Fleet.URL = url
		c.Choria.Fleet.CA = filepath.Join(dir, "broker.pem")
		c.Choria.Fleet.Certificate, c.Choria.Fleet.Key = filepath.Join(dir, "ops.pem"), filepath.Join(dir, "ops-key.pem")
	}
}

func portOf(t *testing.T, a net.Addr) string {
	t.Helper()
	_, port, err := net.SplitHostPort(a.String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// certify writes a key and its own certificate.
func certify(t *testing.T, dir, name, host string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem":     {Type: "CERTIFICATE", Bytes: der},
		name + "-key.pem": {Type: "PRIVATE KEY", Bytes: pkcs8},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// inFleet plays the server in its fleet: it takes every command.
func inFleet(t *testing.T, url, name string, commands chan<- string) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, nats.Secure(&tls.Config{InsecureSkipVerify: true}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	_, err = conn.Subscribe("mcollective.node."+name, func(m *nats.Msg) {
		r, _, err := choria.DecodeRequest(m.Data)
		if err != nil {
			t.Error(err)
			return
		}
		commands <- string(r.Body)
		b, err := (&choria.Reply{Request: r.ID, Sender: name, Body: []byte(`{"statuscode":0}`), Time: time.Now()}).Encode(choria.V1)
		if err == nil {
			err = conn.Publish(r.ReplyTo, b)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
