package choria_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testproc"
)

// A fleet is an installation of muster, the brokers of its Choria servers, and these servers.
type fleet struct {
	*testing.T
	program string              // muster
	dir     string              // the installation is in dir/prov
	brokers []string            // HOST:PORT of muster's
	hosts   []string            // directories of provisioners
	running map[string]*process // provisioners, by directory

	certificate tls.Certificate // of the brokers of Choria servers
	x509, token string          // HOST:PORT of the brokers for servers with certificates, and with server JWTs
	monitors    []string        // HOST:PORT of their monitors
}

// newFleet makes an installation and the configuration of its gateway, and starts the fleet's brokers. The arguments
// are those of `muster provisioner init`.
func newFleet(t *testing.T, brokers []string, args ...string) *fleet {
	t.Helper()
	testproc.NeedsInstall(t)
	testproc.NeedsRoot(t)
	program, err := builtMuster()
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{T: t, program: program, dir: t.TempDir(), brokers: brokers, hosts: []string{"prov"},
		running: make(map[string]*process)}
	f.muster(append([]string{"provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net",
		"--trust-first-use"}, args...)...)
	f.write("prov/secret", "the token's secret\n")
	f.certify()
	f.x509, f.token = f.address(), f.address()
	f.startX509()
	f.startToken()
	f.edit("prov/provisioner.yaml", "\nchoria:\n", `
choria:
  brokers: [`+f.x509+`, `+f.token+`]
  ca: ../fleet.pem
  issuer:
    token: ../issuer.jwt
    seed: ../issuer.seed
`)
	f.write("prov/policy/choria.rego", `package muster.enroll

configuration := {"plugin.choria.middleware_hosts": concat("", ["nats://", brokers[input.csr.key.type]])}

brokers := {"RSA-2048": "`+f.x509+`", "Ed25519": "`+f.token+`"}
`)
	return f
}

// address returns an unused address of this machine.
func (f *fleet) address() string { return "localhost:" + testproc.FreePort(f) }

// certify makes the certificate of the fleet's brokers, which is its own authority.
func (f *fleet) certify() {
	f.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "localhost"},
		DNSNames:              []string{"localhost"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		f.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		f.Fatal(err)
	}
	f.certificate = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	f.write("fleet.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	f.write("fleet-key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
}

// startX509 starts a stock nats-server that demands certificates of muster's authority.
func (f *fleet) startX509() {
	f.Helper()
	monitor := f.address()
	f.monitors = append(f.monitors, monitor)
	f.write("nats.conf", fmt.Sprintf(`listen: %q
http: %q
tls { cert_file: fleet.pem, key_file: fleet-key.pem, ca_file: prov/ca/root.pem, verify: true }
`, f.x509, monitor))
	launch(f, f.dir, "nats-server", testproc.NATSServer(f), "-c", "nats.conf").waitFor("Server is ready")
}

// startToken starts Choria's broker with an organization's issuer, and makes the chain issuer for muster.
func (f *fleet) startToken() {
	f.Helper()
	program, monitor := choriaProgram(f, newest), testproc.FreePort(f)
	f.monitors = append(f.monitors, "localhost:"+monitor)
	for _, name := range []string{"organization", "issuer", "broker"} {
		f.run(program, "jwt", "keys", name+".seed", name+".public")
	}
	f.run(program, "jwt", "client", "issuer.jwt", "muster", "organization.seed", "--issuer", "--no-fleet-management",
		"--public-key", f.contents("issuer.public"), "--validity", "24h")
	f.run(program, "jwt", "server", "broker.jwt", "localhost", f.contents("broker.public"), "organization.seed")
	_, port, _ := strings.Cut(f.token, ":")
	f.write("broker.conf", `identity = localhost
loglevel = info
plugin.choria.broker_network = true
plugin.choria.network.listen_address = 127.0.0.1
plugin.choria.network.client_port = `+port+`
plugin.choria.stats_address = 127.0.0.1
plugin.choria.stats_port = `+monitor+`
plugin.choria.use_srv = false
plugin.security.provider = choria
plugin.security.issuer.names = choria
plugin.security.issuer.choria.public = `+f.contents("organization.public")+`
plugin.security.choria.token_file = `+filepath.Join(f.dir, "broker.jwt")+`
plugin.security.choria.seed_file = `+filepath.Join(f.dir, "broker.seed")+`
plugin.security.choria.certificate = `+filepath.Join(f.dir, "fleet.pem")+`
plugin.security.choria.key = `+filepath.Join(f.dir, "fleet-key.pem")+`
plugin.security.choria.ca = `+filepath.Join(f.dir, "fleet.pem")+`
`)
	launch(f, f.dir, "choria broker", program, "broker", "run", "--config", "broker.conf").waitFor("Server is ready")
}

// newEmbedded is a fleet with one provisioner, which has its own broker.
func newEmbedded(t *testing.T) *fleet {
	t.Helper()
	address := "localhost:" + testproc.FreePort(t)
	return newFleet(t, []string{address}, "--listen", strings.Replace(address, "localhost", "127.0.0.1", 1))
}

// newCluster is a fleet with three provisioners at three brokers.
func newCluster(t *testing.T) *fleet { return newClusterOf(t, 3) }

// newClusterOf has muster run the first so many of the three brokers. The rest are stock nats-servers.
func newClusterOf(t *testing.T, byMuster int) *fleet {
	t.Helper()
	var brokers, urls, routes []string
	for range 3 {
		address := "localhost:" + testproc.FreePort(t)
		brokers, urls = append(brokers, address), append(urls, "tls://"+address)
		routes = append(routes, "127.0.0.1:"+testproc.FreePort(t))
	}
	f := newFleet(t, brokers, "--broker-name", "localhost", "--broker-address", "127.0.0.1",
		"--broker-urls", strings.Join(urls, ","))
	for i, address := range brokers {
		name := fmt.Sprintf("broker%d", i+1)
		args := []string{"broker", "config", "--host", name, "--dir", name, "--write", "--listen",
			strings.Replace(address, "localhost", "127.0.0.1", 1), "--cluster-listen", routes[i],
			"--max-store-bytes", fmt.Sprint(8 << 30)}
		for _, route := range routes {
			args = append(args, "--route", route)
		}
		f.muster(args...)
		if i < byMuster {
			launch(f, f.dir, name, f.program, "broker", "run", name+"/nats-server.conf")
		} else {
			launch(f, f.dir, name, testproc.NATSServer(f), "-c", name+"/nats-server.conf")
		}
	}
	for i := 2; i <= 3; i++ {
		host := fmt.Sprintf("prov%d", i)
		f.hosts = append(f.hosts, host)
		f.run("cp", "-a", "prov", host)
		f.edit(host+"/provisioner.yaml", "\nname: localhost\n", "\nname: "+host+"\n")
	}
	return f
}

// start starts the provisioners that do not run, and waits until they serve.
func (f *fleet) start() {
	f.Helper()
	for _, host := range f.hosts {
		if f.running[host] == nil {
			f.running[host] = launch(f, f.dir, host, f.program, "provisioner", "run", "--config", host+"/provisioner.yaml")
		}
	}
	for _, p := range f.running {
		p.waitFor("provisioner is serving")
	}
}

// kill ends a provisioner as a power cut would.
func (f *fleet) kill(host string) {
	f.running[host].kill()
	delete(f.running, host)
}

// A server is a Choria server on a machine of its own: a directory and a host name.
type server struct {
	*process
	fleet *fleet
	host  string
	dir   string
	argv  []string
}

// boot starts a server whose token names the broker at an address.
func (f *fleet) boot(version, host, address string, token ...string) *server {
	f.Helper()
	dir, err := os.MkdirTemp(f.dir, strings.ToLower(host)+"-")
	if err != nil {
		f.Fatal(err)
	}
	f.muster(append([]string{"jwt", filepath.Join(dir, "provisioning.jwt"), "prov/signer-key.pem", "--insecure",
		"--secret-file", "prov/secret", "--default", "--urls", address, "--ca", "prov/ca/root.pem"}, token...)...)
	s := &server{fleet: f, host: host, dir: dir}
	s.argv = []string{"unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, host,
		choriaProgram(f, version), "server", "run", "--config", filepath.Join(dir, "server.conf")}
	s.start()
	return s
}

func (s *server) start() { s.process = launch(s.fleet, s.dir, s.host, s.argv...) }

// A record is what `muster node show` shows of a node.
type record struct {
	Record struct {
		State    string `json:"state"`
		Protocol string `json:"protocol"`
		Current  *struct {
			Serial string `json:"serial"`
			DER    []byte `json:"der"`
		} `json:"current"`
		Next    json.RawMessage `json:"next"`
		Lineage []string        `json:"lineage"`
	} `json:"record"`
}

// A connection is what a broker's monitor shows of a server.
type connection struct {
	Name         string `json:"name"`
	Account      string `json:"account"`
	Certificates []struct {
		SHA256 string `json:"cert_sha256"`
	} `json:"tls_peer_certs"`
}

// inFleet returns the connections of a name at the fleet's brokers.
func (f *fleet) inFleet(name string) (found []connection) {
	f.Helper()
	for _, monitor := range f.monitors {
		r, err := http.Get("http://" + monitor + "/connz?auth=1") //nolint:noctx // of this machine
		if err != nil {
			f.Fatal(err)
		}
		var all struct {
			Connections []connection `json:"connections"`
		}
		err = json.NewDecoder(r.Body).Decode(&all)
		_ = r.Body.Close()
		if err != nil {
			f.Fatal(err)
		}
		for _, c := range all.Connections {
			if c.Name == name {
				found = append(found, c)
			}
		}
	}
	return found
}

// provisioned waits until the server is in its fleet, with what muster has on record, and returns the record.
func (s *server) provisioned() *record {
	s.fleet.Helper()
	eventually(s.fleet, s.host+" is in its fleet", func() bool { return len(s.fleet.inFleet(s.host)) > 0 })
	// The broker may close a connection after the server has told that it restarts.
	connections := s.fleet.inFleet(s.host)
	if len(connections) != 1 {
		s.fleet.Fatalf("%s has connections %+v, want one", s.host, connections)
	}
	var r record
	s.fleet.read(&r, "node", "show", s.host)
	if r.Record.State != "provisioned" || r.Record.Protocol != "choria" || r.Record.Current == nil ||
		len(r.Record.Next) > 0 || len(r.Record.Lineage) != 1 {
		s.fleet.Fatalf("%s: record %+v", s.host, r)
	}
	sum := sha256.Sum256(r.Record.Current.DER)
	shown := connections[0].Certificates
	if connections[0].Account == "choria" {
		view := s.fleet.run(choriaProgram(s.fleet, newest), "jwt", "view", filepath.Join(s.dir, "server.jwt"), "organization.public")
		if !strings.Contains(view, "Validated Server Token") {
			s.fleet.Errorf("%s has the server token:\n%s", s.host, view)
		}
	} else if len(shown) == 0 || shown[0].SHA256 != hex.EncodeToString(sum[:]) {
		s.fleet.Errorf("%s shows certificates %+v, want %x, which is on record", s.host, shown, sum)
	}
	return &r
}

// once checks that the server got one certificate, whatever was repeated.
func (s *server) once(r *record) {
	s.fleet.Helper()
	issued := s.fleet.events("--node", s.host, "--type", "node.enrolled")
	if len(issued) == 0 || slices.ContainsFunc(issued, func(e event) bool {
		return e.Data.Serial != r.Record.Current.Serial
	}) {
		s.fleet.Errorf("%s: issued %+v, want serial %s alone", s.host, issued, r.Record.Current.Serial)
	}
}
