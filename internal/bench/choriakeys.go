package bench

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/choria"
)

// newChoriaNode returns a node with the key that the gateway is going to ask for: RSA for a certificate, Ed25519 for a
// server JWT.
func (f *fleet) newChoriaNode(i int) (*node, error) {
	identity := identityOf(f.run, i)
	n := &node{
		Node: &simnode.Node{
			Identity: identity,
			Token:    f.token,
			Facts:    factsOf(identity, cmp.Or(f.cfg.FactsBytes, usualFacts)),
		},
		credentials: credentials{name: identity, token: f.token},
	}
	if f.cfg.Choria == choria.V2 {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		n.Key = key
		return n, err
	}
	key := f.keys[i%len(f.keys)]
	n.Key = key
	if err := n.makeCSR(); err != nil {
		return nil, err
	}
	n.csr = fmt.Sprintf(`{"csr":%q,"public_key":%q,"ssldir":%q}`, n.csr,
		textOf("PUBLIC KEY", x509.MarshalPKCS1PublicKey(&key.PublicKey)), choriaSSLDir)
	return n, nil
}

// makeCSR makes a request with the node's name as common name alone.
func (n *node) makeCSR() error {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: n.Identity},
	}, n.Key)
	n.csr = textOf("CERTIFICATE REQUEST", der)
	return err
}

func textOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// prepareChoria does what newChoriaNode needs. host is the broker's.
func (f *fleet) prepareChoria(ctx context.Context, host string) error {
	claims, err := jwt.Peek(f.token)
	if err != nil {
		return err
	}
	f.secret, f.create, f.act, f.check = string(claims.Token), f.newChoriaNode, f.provision, f.checkConfigured
	f.secure = unverified(host)
	if f.cfg.Choria != choria.V1 {
		return nil
	}
	return f.makeKeys(ctx)
}

// makeKeys makes the RSA keys that nodes share.
func (f *fleet) makeKeys(ctx context.Context) error {
	f.keys = make([]*rsa.PrivateKey, sharedKeys)
	return each(ctx, len(f.keys), runtime.GOMAXPROCS(0), func(i int) (err error) {
		f.keys[i], err = rsa.GenerateKey(rand.Reader, 2048)
		return err
	})
}

// sharedKeys is how many RSA keys Choria servers or Puppet agents share: making one takes 80 ms.
const sharedKeys = 8

// gateway returns the keys of the section choria in provisioner.yaml. For server JWTs it makes a chain issuer of an
// organization.
func (s *serving) gateway(cfg *Config) (string, error) {
	const brokers = "  brokers: [nats://broker1.ams1.bench.muster:4222]\n"
	switch cfg.Choria {
	case 0:
		return "", nil
	case choria.V1:
		return brokers, nil
	}
	_, organization, err := ed25519.GenerateKey(rand.Reader)
	public, key, ierr := ed25519.GenerateKey(rand.Reader)
	if err := errors.Join(err, ierr); err != nil {
		return "", err
	}
	id := wire.NewID()
	chain := ed25519.Sign(organization, fmt.Appendf(nil, "%s.%x", id, public))
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"EdDSA","typ":"JWT"}`)) + "." + encode(fmt.Appendf(nil,
		`{"purpose":"choria_client_id","callerid":"choria=bench","ou":"choria","public_key":"%x","tcs":"%x",`+
			`"iss":"I-%x","jti":%q,"exp":%d,"permissions":{"provisioner":true}}`,
		public, chain, organization.Public(), id, time.Now().Add(24*time.Hour).Unix()))
	token := signed + "." + encode(ed25519.Sign(key, []byte(signed)))
	s.issuer = public
	return brokers + "  issuer: {token: issuer.jwt, seed: issuer.seed}\n", errors.Join(
		os.WriteFile(filepath.Join(s.home(), "issuer.jwt"), []byte(token), 0o600),
		os.WriteFile(filepath.Join(s.home(), "issuer.seed"), fmt.Appendf(nil, "%x", key.Seed()), 0o600),
	)
}
