package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/server/trust"
)

// A pair is a key with its request and, once issued, its certificate.
type pair struct {
	Key         string  `json:"key"` // PKCS #8 in PEM
	CSR         []byte  `json:"csr,omitempty"`
	Asked       string  `json:"asked"`                 // see asked
	Certificate string  `json:"certificate,omitempty"` // PEM: leaf, issuing certificates
	CA          string  `json:"ca,omitempty"`
	Jitter      float64 `json:"jitter"` // 0 to 1, spreads renewals
}

// asked identifies what a specification asks of the provisioner: if it changes, a new certificate is needed.
func asked(spec *wire.Specification) string {
	part := wire.Specification{Profile: spec.Profile, Network: spec.Network, DNSNames: spec.DNSNames,
		IPAddresses: spec.IPAddresses, URIs: spec.URIs, Usages: spec.Usages, Key: spec.Key}
	part.Key.Keep = false
	b, _ := json.Marshal(part) // plain data
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// newPair returns a pair without certificate, for the former key or a new one.
func newPair(spec *wire.Specification, former *pair, identity string, facts json.RawMessage) (*pair, error) {
	var key crypto.PrivateKey
	var err error
	if former != nil && spec.Key.Keep {
		key, err = keyfile.Parse([]byte(former.Key), nil)
	}
	want := spec.Key.Type
	if want == "" {
		want = wire.SpecificationKeys[0]
	}
	if key == nil || keyType(key) != want {
		key, err = generate(want)
	}
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of kind %s cannot sign", keyfile.Kind(key))
	}
	text, err := keyfile.Marshal(key, nil)
	if err != nil {
		return nil, err
	}
	template := x509.CertificateRequest{}
	for _, name := range spec.DNSNames {
		id, err := wire.ExpandName(name, func(path string) (string, error) { return lookUp(path, identity, facts) })
		if err != nil {
			return nil, err
		}
		if !slices.Contains(template.DNSNames, string(id)) {
			template.DNSNames = append(template.DNSNames, string(id))
		}
	}
	for _, address := range spec.IPAddresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	for _, text := range spec.URIs {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		template.URIs = append(template.URIs, u)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &template, signer)
	return &pair{Key: string(text), CSR: csr, Asked: asked(spec)}, err
}

// lookUp returns the value of a template: the identity, or a text or number of the facts.
func lookUp(path, identity string, facts json.RawMessage) (string, error) {
	names := strings.Split(path, ".")
	if names[0] == "identity" {
		return identity, nil
	}
	var value any
	_ = json.Unmarshal(facts, &value) // nil: none
	for _, name := range names[1:] {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	switch value.(type) {
	case string, float64:
		return fmt.Sprint(value), nil
	}
	return "", fmt.Errorf("the node's facts have no text %s", strings.TrimPrefix(path, "facts."))
}

func generate(keyType string) (crypto.PrivateKey, error) {
	switch keyType {
	case "P-384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "RSA-2048":
		return rsa.GenerateKey(rand.Reader, 2048)
	case "RSA-4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func keyType(key crypto.PrivateKey) string {
	if k, ok := key.(*rsa.PrivateKey); ok {
		return fmt.Sprintf("RSA-%d", k.N.BitLen())
	}
	return keyfile.Kind(key)
}

func (p *pair) chain() ([]*x509.Certificate, error) { return trust.ParseCertificates(p.Certificate) }

// check returns the certificate if key, certificate and authority fit, and it has not expired by a clock.
func (p *pair) check(now func() time.Time) (*x509.Certificate, error) {
	chain, err := p.chain()
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	key, err := keyfile.Parse([]byte(p.Key), nil)
	if err != nil {
		return nil, err
	}
	leaf := chain[0]
	if signer, ok := key.(crypto.Signer); !ok || !wire.SamePublicKey(leaf.PublicKey, signer.Public()) {
		return nil, errors.New("the certificate is for another key")
	}
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	authority, err := trust.ParseCertificates(p.CA)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	at := now()
	for _, c := range slices.Concat(chain, authority) { // a backdated certificate may begin before its authority does
		if c.NotBefore.After(at) {
			at = c.NotBefore
		}
		if wire.SelfSigned(c) {
			roots.AddCert(c)
		} else {
			others.AddCert(c)
		}
	}
	if at.After(leaf.NotAfter) {
		return nil, fmt.Errorf("%w, at %s", trust.ErrExpired, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return leaf, err
}

// content returns what a file of a specification contains.
func (p *pair) content(kind string, f *wire.SpecificationFile) ([]byte, error) {
	order := []string{kind}
	if kind == "combined" {
		if order = f.Order; len(order) == 0 {
			order = wire.DefaultOrder
		}
	}
	chain, err := p.chain()
	if err != nil {
		return nil, err
	}
	text := ""
	for _, part := range order {
		text += map[string]string{"key": p.Key, "certificate": trust.EncodeCertificates(chain[:1]),
			"chain": trust.EncodeCertificates(chain[1:]), "ca": p.CA}[part]
	}
	return []byte(text), nil
}

// renewAt returns when to renew: as the specification says, or after two thirds of the life and up to a twelfth later,
// to spread nodes. It is never in the first half of the life, so that a short one does not renew all the time.
func (p *pair) renewAt(spec *wire.Specification, leaf *x509.Certificate) time.Time {
	start, life := trust.LifeOf(leaf)
	at, err := wire.RenewAt(spec.Renew, start, leaf.NotAfter)
	if err != nil || spec.Renew == "" {
		at = start.Add(life*2/3 + time.Duration(p.Jitter*float64(life/12)))
	}
	if half := start.Add(life / 2); at.Before(half) {
		at = half
	}
	return at
}
