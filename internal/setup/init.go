// Package setup makes and changes the files of an installation: the initial ones, a new authority, and the store, by a
// restore or an accepted loss.
package setup

import (
	"cmp"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"muster/internal/daemon"
	"muster/internal/discover"
	"muster/internal/seal"
	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner/broker"
	"muster/provisioner/ca"
)

//go:embed templates
var templates embed.FS

// The installed unit runs the setup in DefaultDir, which it cannot write, with its data in DefaultDataDir.
const (
	DefaultDir     = "/etc/muster/provisioner"
	DefaultDataDir = "/var/lib/muster"
)

// An Installation is what [Init] makes.
type Installation struct {
	Name          string   // host name of provisioner and broker. Required
	TrustDomain   string   // host name. Required
	Site          string   // optional
	Listen        string   // host:port; "": 127.0.0.1:4222
	BrokerNames   []string // host names for nodes; none: Name
	Addresses     []string // IP addresses for nodes
	TrustFirstUse bool     // the open policy, for labs
	Cluster       string   // URLs of external brokers; replaces Listen
	Replicas      int      // of the store on the cluster; 0: 3
	Passphrase    []byte   // encrypts all private keys; none: not encrypted
	DataDir       string   // relative to the setup. "": DefaultDataDir for DefaultDir, else data
	Choria        Choria   // zero: nothing
	Now           func() time.Time
}

// Choria is what an installation takes over from Choria's provisioner. All of it is optional.
type Choria struct {
	Signer   []byte   // public key of the tokens' signer
	Helper   []string // command and arguments; none: the template
	Reserved []string // patterns of names
	Metrics  int      // port

	Gateway                 bool   // for nodes that run Choria's server
	IssuerToken, IssuerSeed string // files of a chain issuer
}

// NameByHost sets a missing name to this machine's, and a missing trust domain to the domain of the name.
func (s *Installation) NameByHost() {
	if host, err := os.Hostname(); s.Name == "" && err == nil {
		s.Name = host
	}
	s.Name = wire.FoldName(s.Name)
	if s.TrustDomain == "" {
		_, domain, _ := strings.Cut(s.Name, ".")
		s.TrustDomain = cmp.Or(domain, s.Name)
	}
	s.TrustDomain = wire.FoldName(s.TrustDomain)
}

// BrokerURLs are the addresses for tokens and nodes, comma separated: the broker's names with its port, or the
// cluster's servers.
func (s Installation) BrokerURLs() string {
	if s.Cluster != "" {
		return strings.NewReplacer("tls://", "", "nats://", "").Replace(s.Cluster)
	}
	_, port, err := net.SplitHostPort(s.Listen)
	if err != nil || port == "0" {
		port = "4222"
	}
	var urls []string
	for _, n := range s.BrokerNames {
		urls = append(urls, net.JoinHostPort(n, port))
	}
	return strings.Join(urls, ",")
}

// Init writes a complete installation into dir, or nothing. dir must be missing or empty. An existing DataDir is kept,
// and its owner gets the installation. The error lists every fault of s.
func Init(dir string, s Installation) error {
	if err := s.Check(); err != nil {
		return err
	}
	s.complete(dir)
	dir, err := placeFor(dir)
	if err != nil {
		return err
	}
	return makeDir(dir, 0o755, func(w *writer) error { // the keys in it are 0600
		if err := s.write(w); err != nil {
			return err
		}
		// This fails if another process has put a file into dir.
		err := os.Remove(dir)
		if errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("%s: has a volume mounted on it, and cannot be replaced: give a directory in it, such "+
				"as %s",
				dir, filepath.Join(dir, "provisioner"))
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// Exists reports whether dir has an installation. It is complete, since [Init] makes one with a single rename.
func Exists(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, "provisioner.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// placeFor returns dir without symbolic links, and an error unless dir is missing or empty.
func placeFor(dir string) (string, error) {
	if strings.ContainsFunc(dir, unicode.IsControl) { // the output of init names dir within a line
		return "", fmt.Errorf("%q: has a control character in its name: give another directory", dir)
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return "", fmt.Errorf("%s: not empty (%s, ...): keys are never overwritten: give a new directory", dir,
			entries[0].Name())
	case errors.Is(err, syscall.ENOTDIR):
		return "", fmt.Errorf("%s: is a file, or below a file: give a new directory", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if dir = filepath.Clean(dir); dir == "." {
		return "", errors.New(".: the current directory cannot be replaced: run this from the directory above")
	}
	if place, err := filepath.EvalSymlinks(dir); err == nil {
		return place, nil
	}
	return dir, nil
}

// Check reports every fault of s, with the flag of init.
func (s *Installation) Check() error {
	v := &daemon.Mistakes{}
	v.Name("--host", s.Name)
	v.Name("--trust-domain", s.TrustDomain)
	if s.Site != "" {
		v.Site("--site", s.Site)
	}
	if s.Listen != "" {
		v.Listen("--listen", s.Listen)
	}
	if s.Cluster != "" {
		err := broker.CheckURLs(s.Cluster)
		for url := range strings.SplitSeq(s.Cluster, ",") {
			if err == nil { // as nodes read them
				_, err = discover.NormalizeURL(url, false)
			}
		}
		v.Check("--broker-urls", err)
	}
	if s.Replicas < 0 || s.Replicas > daemon.MaxReplicas {
		v.Bad("--replicas", "is %d, want 1 to %d", s.Replicas, daemon.MaxReplicas)
	}
	for _, n := range s.BrokerNames {
		v.Name("--broker-name", n)
	}
	for _, a := range s.Addresses {
		v.Address("--broker-address", a)
	}
	return v.Err()
}

func (s *Installation) complete(dir string) {
	if s.DataDir == "" && filepath.Clean(dir) == DefaultDir {
		s.DataDir = DefaultDataDir
	}
	s.DataDir = cmp.Or(s.DataDir, "data")
	s.Listen = cmp.Or(s.Listen, "127.0.0.1:4222")
	if s.Cluster != "" {
		s.nameServers()
	}
	if len(s.BrokerNames) == 0 {
		s.BrokerNames = []string{s.Name}
	}
	s.Replicas = cmp.Or(s.Replicas, 3)
	if s.Now == nil {
		s.Now = time.Now
	}
}

// nameServers adds the hosts of a cluster's URLs to the certificates' names and addresses: provisioners and most nodes
// connect to them.
func (s *Installation) nameServers() {
	for text := range strings.SplitSeq(s.Cluster, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil {
			continue // reported by Check
		}
		host := strings.ToLower(u.Hostname())
		if net.ParseIP(host) != nil {
			if !slices.Contains(s.Addresses, host) {
				s.Addresses = append(s.Addresses, host)
			}
		} else if !slices.Contains(s.BrokerNames, host) {
			s.BrokerNames = append(s.BrokerNames, host)
		}
	}
}

func (s *Installation) write(w *writer) error {
	w.passphrase = s.Passphrase
	authority, err := ca.Generate(s.TrustDomain, s.Now())
	if err != nil {
		return err
	}
	w.file("ca/root.pem", 0o644, []byte(authority.RootPEM))
	w.file("ca/issuing.pem", 0o644, []byte(authority.IssuingPEM))
	w.key("ca/root-key.pem", authority.RootKey)
	w.key("ca/issuing-key.pem", authority.IssuingKey)

	pub, signer, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("signer key: %w", err)
	}
	w.key("signer-key.pem", signer)
	signerPEM, err := jwt.MarshalPublicKey(pub)
	if err != nil {
		return err
	}
	w.file("signer.pem", 0o644, signerPEM)

	x, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("seal key: %w", err)
	}
	sealKey, err := seal.NewPrivateKey(x)
	if err != nil {
		return err
	}
	w.key("seal-key.pem", x)
	w.file("seal.pub", 0o644, []byte(sealKey.Public().String()+"\n"))

	if s.Cluster != "" {
		w.brokerKeys()
	}
	if s.Choria.Signer != nil {
		w.file("choria-signer.pem", 0o644, s.Choria.Signer)
	}
	for name, content := range policies.Builtin(s.TrustFirstUse) {
		w.file(filepath.Join("policy", name), 0o644, []byte(content))
	}
	w.template("provisioner.yaml", s)
	w.template("server.conf", s)
	w.dataDir(s.DataDir)
	return w.err
}

// giveToOwnerOf gives dir and its content to the owner of like, if this process is root: the provisioner may run as
// another user.
func giveToOwnerOf(like, dir string) error {
	owner, err := os.Stat(like)
	if err != nil {
		return err
	}
	stat, ok := owner.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(stat.Uid), int(stat.Gid)) //nolint:gosec // only its owner writes to the directory
	})
}
