package certificates

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"muster/internal/disk"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/server/files"
	"muster/server/trust"
)

// A state is what a state file contains, with private keys. It is on disk before the next step is taken.
type state struct {
	Status

	Specification wire.Specification `json:"specification"` // the last one that was accepted
	Identity      string             `json:"identity,omitempty"`

	InForce *pair `json:"in_force,omitempty"`
	Staged  *pair `json:"staged,omitempty"` // to be in force once it is issued and saved

	Written []string `json:"written,omitempty"` // paths; none of what was adopted
	Act     bool     `json:"act,omitempty"`     // the action has to run
	Order   Verb     `json:"order,omitempty"`   // renew or rekey, not yet done
	Tries   int      `json:"tries,omitempty"`   // failed, one after the other

	Reported wire.CertificateState `json:"reported,omitzero"` // what the provisioner knows

	onDisk []byte
	want   *want
	next   time.Time // of the next steps; zero: now
}

// adopted: another program wrote the files in force.
func (st *state) adopted() bool { return st.InForce != nil && st.Written == nil }

// A pair is a key with its request and certificate.
type pair struct {
	Key         string             `json:"key"` // PKCS #8 in PEM
	CSR         []byte             `json:"csr,omitempty"`
	Asked       wire.Specification `json:"asked"`                 // see asked
	Certificate string             `json:"certificate,omitempty"` // PEM: leaf, issuing certificates
	CA          string             `json:"ca,omitempty"`
	Jitter      float64            `json:"jitter,omitempty"` // 0 to 1, spreads renewals
	Saved       time.Time          `json:"saved,omitzero"`
}

// asked returns what a specification asks of the provisioner. If it changes, a new certificate is needed.
func asked(s wire.Specification) wire.Specification {
	s.Key.Keep, s.Files, s.Renew, s.Action, s.Removed = false, nil, "", "", ""
	return s
}

func (p *pair) isFor(s *wire.Specification) bool { return reflect.DeepEqual(p.Asked, asked(*s)) }

func newPair(spec *wire.Specification, former *pair, node *Node) (*pair, error) {
	var key crypto.PrivateKey
	var err error
	if former != nil && spec.Key.Keep {
		key, err = keyfile.Parse([]byte(former.Key), nil)
	}
	if want := cmp.Or(spec.Key.Type, wire.SpecificationKeys[0]); err == nil && keyType(key) != want {
		key, err = generate(want)
	}
	var request x509.CertificateRequest
	for _, name := range spec.DNSNames {
		id, failed := wire.ExpandName(name, node.lookUp)
		request.DNSNames, err = append(request.DNSNames, string(id)), errors.Join(err, failed)
	}
	for _, address := range spec.IPAddresses {
		request.IPAddresses = append(request.IPAddresses, net.ParseIP(address))
	}
	for _, text := range spec.URIs {
		u, failed := url.Parse(text)
		request.URIs, err = append(request.URIs, u), errors.Join(err, failed)
	}
	if err != nil {
		return nil, err
	}
	text, err := keyfile.Marshal(key, nil)
	if err != nil {
		return nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &request, key)
	return &pair{Key: string(text), CSR: csr, Asked: asked(*spec)}, err
}

func (n *Node) lookUp(path string) (string, error) {
	names := strings.Split(path, ".")
	if names[0] == "identity" {
		return n.Identity, nil
	}
	var value any
	_ = json.Unmarshal(n.Facts(), &value) // without facts there is no value
	for _, name := range names[1:] {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	switch value.(type) {
	case string, float64:
		return fmt.Sprint(value), nil
	}
	return "", fmt.Errorf("%s is no text in the node's facts", path)
}

func generate(keyType string) (crypto.PrivateKey, error) {
	switch keyType {
	case "P-256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "P-384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "RSA-2048":
		return rsa.GenerateKey(rand.Reader, 2048)
	}
	return rsa.GenerateKey(rand.Reader, 4096)
}

func keyType(key crypto.PrivateKey) string {
	if k, ok := key.(*rsa.PrivateKey); ok {
		return fmt.Sprintf("RSA-%d", k.N.BitLen())
	}
	return keyfile.Kind(key)
}

// check returns the certificate if key, certificate and authority fit, and it has not expired.
func (p *pair) check(now trust.Clock) (*x509.Certificate, error) {
	if _, err := tls.X509KeyPair([]byte(p.Certificate), []byte(p.Key)); err != nil {
		return nil, err
	}
	chain, err := trust.ParseCertificates(p.Certificate)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	roots, cross, err := trust.SplitAuthority(p.CA)
	if err != nil {
		return nil, err
	}
	return chain[0], trust.Verify(append(chain, cross...), roots, now, x509.ExtKeyUsageAny)
}

func (p *pair) content(parts []string) ([]byte, error) {
	chain, err := trust.ParseCertificates(p.Certificate)
	if err != nil {
		return nil, err
	}
	all := map[string]string{"key": p.Key, "certificate": trust.EncodeCertificates(chain[:1]),
		"chain": trust.EncodeCertificates(chain[1:]), "ca": p.CA}
	var text []byte
	for _, part := range parts {
		text = append(text, all[part]...)
	}
	return text, nil
}

// renewAt returns when to renew: as the specification says, or after two thirds of the life and up to a twelfth later,
// to spread nodes. If the machine's clock is ahead, a new certificate is due at once: then it still has a part of its
// life.
func (p *pair) renewAt(spec *wire.Specification, leaf *x509.Certificate) time.Time {
	start, life := trust.LifeOf(leaf)
	at, _ := wire.RenewAt(spec.Renew, start, leaf.NotAfter) // the specification was checked
	if spec.Renew == "" {
		at = at.Add(time.Duration(p.Jitter * float64(life/12)))
	}
	if earliest := p.Saved.Add(life / 24); at.Before(earliest) {
		return earliest
	}
	return at
}

func (st *state) describe() {
	st.Files = make(map[string]string)
	for kind, f := range st.Specification.Files {
		st.Files[kind] = f.Path
	}
	if st.InForce == nil {
		return
	}
	chain, err := trust.ParseCertificates(st.InForce.Certificate)
	if err != nil {
		return // a file that was changed by hand
	}
	leaf := chain[0]
	st.Serial, st.NotBefore, st.NotAfter = leaf.SerialNumber.Text(16), leaf.NotBefore, leaf.NotAfter
	st.RenewAt = st.InForce.renewAt(&st.Specification, leaf)
	st.Names = slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		st.Names = append(st.Names, ip.String())
	}
}

// readStates reads all state files. An unreadable one counts as none: its certificate is renewed.
func readStates(dir string) (map[string]*state, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	all := make(map[string]*state)
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		st, failed := inputfile.Parse(path, inputfile.Configured, func(b []byte) (*state, error) {
			st := &state{onDisk: b}
			return st, json.Unmarshal(b, st)
		})
		if err = errors.Join(err, failed); failed == nil && wire.ValidCertificateName(name) {
			st.Name = name
			all[name] = st
		}
	}
	return all, err
}

func (m *Manager) mark(st *state, to string) error {
	st.enter(to, m.now())
	return m.put(st)
}

func (st *state) enter(to string, now time.Time) {
	if st.InForce != nil && (to == Wanted || to == KeyMade || to == Requested) {
		to = Renewing
	}
	if st.State != to {
		st.State, st.Since = to, now.UTC().Round(0) // as on disk
	}
}

func (m *Manager) put(st *state) error {
	st.describe()
	b, err := json.Marshal(st)
	if err != nil || bytes.Equal(b, st.onDisk) {
		return err
	}
	if err := os.MkdirAll(m.cfg.State, 0o700); err != nil {
		return err
	}
	if err := files.Replace(filepath.Join(m.cfg.State, st.Name+".json"), b, 0o600); err != nil {
		return err
	}
	st.onDisk = b
	m.cfg.Step("state " + st.State)
	return disk.SyncDir(m.cfg.State)
}

// Statuses reads the state of all service certificates, sorted by name, also while no manager runs. The error is about
// files that cannot be read, and may come with statuses.
func (m *Manager) Statuses() ([]Status, error) {
	states, err := readStates(m.cfg.State)
	wants, failed := m.cfg.wants(states)
	var list []Status
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		st, w := states[name], wants[name]
		if st == nil {
			st = &state{Status: Status{Name: name, Source: w.source, State: Wanted, Stuck: w.problem != nil}}
			if w.problem != nil {
				st.Reason = oneLine(w.problem)
			}
		}
		list = append(list, st.Status)
	}
	return list, errors.Join(err, failed)
}
