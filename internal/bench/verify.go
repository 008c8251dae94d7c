package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// verify checks the certificates of all nodes, each with its node's key and
// name, once the clock has stopped: on real machines it is their own cores that
// do it. Every one is checked; the authority's own certificates once.
func (d *driver) verify(ctx context.Context) {
	issuers := &issuers{pin: d.pin, known: map[string]*x509.Certificate{}}
	var all sync.WaitGroup
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < len(d.nodes) && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				n := d.nodes[i]
				if n.certificate == "" {
					continue
				}
				if err := issuers.check(n); err != nil {
					d.mu.Lock()
					d.outcome.Failed++
					d.outcome.Enrolled--
					if d.order.Applied {
						d.outcome.Provisioned--
					}
					if len(d.outcome.Why) < maxWhy {
						d.outcome.Why = append(d.outcome.Why, n.identity+": "+err.Error())
					}
					d.mu.Unlock()
				}
			}
		})
	}
	all.Wait()
}

// issuers are the issuing certificates seen, by what came with them.
type issuers struct {
	pin string // SHA-256 of the root, hex; empty for any

	mu    sync.Mutex
	known map[string]*x509.Certificate // guarded by mu
}

// check reports what is wrong with what a node got.
func (s *issuers) check(n *node) error {
	block, rest := pem.Decode([]byte(n.certificate))
	if block == nil {
		return errors.New("certificate is no PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	if !n.public().Equal(leaf.PublicKey) {
		return errors.New("certificate is for another key")
	}
	if len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != n.identity {
		return fmt.Errorf("certificate is for %q", leaf.DNSNames)
	}
	issuer, err := s.issuer(string(rest), n.ca)
	if err != nil {
		return err
	}
	return leaf.CheckSignatureFrom(issuer)
}

// issuer returns the certificate that has issued a node's, once it is known to
// lead to a root that came with it and that is the pinned one.
func (s *issuers) issuer(chain, ca string) (*x509.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.known[chain+ca]; c != nil {
		return c, nil
	}
	between, err := certificates([]byte(chain))
	if err != nil {
		return nil, fmt.Errorf("chain: %w", err)
	}
	roots, err := certificates([]byte(ca))
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	pool := x509.NewCertPool()
	for _, r := range roots {
		if s.pin == "" || fingerprint(r) == s.pin {
			pool.AddCert(r)
		}
	}
	if len(between) == 0 {
		return nil, errors.New("chain: no issuing certificate")
	}
	others := x509.NewCertPool()
	for _, c := range between[1:] {
		others.AddCert(c)
	}
	if _, err := between[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: others, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil, fmt.Errorf("chain: %w", err)
	}
	s.known[chain+ca] = between[0]
	return between[0], nil
}

func certificates(b []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			return all, nil
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// brokerTLS accepts a broker for the host under the authority with the
// fingerprint pin, which has to be in the chain that it presents, or any if
// there is no pin, as the agent does. A chain that was checked once is good for
// all nodes: the handshake itself proves each time that the key is there.
func brokerTLS(host, pin string) *tls.Config {
	var known atomic.Pointer[[]byte] // the leaf that was checked last
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         host,
		InsecureSkipVerify: true, // VerifyConnection does it, by the pin
		VerifyConnection: func(cs tls.ConnectionState) error {
			leaf := cs.PeerCertificates[0]
			if k := known.Load(); pin == "" || k != nil && bytes.Equal(*k, leaf.Raw) {
				return nil
			}
			roots, others := x509.NewCertPool(), x509.NewCertPool()
			for _, c := range cs.PeerCertificates {
				others.AddCert(c)
				if fingerprint(c) == pin {
					roots.AddCert(c)
				}
			}
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, DNSName: host}); err != nil {
				return fmt.Errorf("broker under another authority than the token pins: %w", err)
			}
			known.Store(&leaf.Raw)
			return nil
		},
	}
}
