package bench

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"muster/internal/wire"
)

// verify checks what every node was offered, once the clock has stopped: real machines have cores of their own for
// that. A node with something wrong has failed.
func (f *fleet) verify(ctx context.Context) error {
	f.cfg.Progress("verifying")
	return each(ctx, len(f.nodes), runtime.GOMAXPROCS(0), func(i int) error {
		n := f.nodes[i]
		if n.offer == nil {
			return nil
		}
		if err := n.check(f.pin); err != nil {
			f.count.mu.Lock()
			defer f.count.mu.Unlock()
			f.count.failed++
			f.count.enrolled--
			if f.applied {
				f.count.provisioned--
			}
			f.count.because(n, err)
		}
		return nil
	})
}

// check returns what is wrong with what the node was offered: it must be what the node confirmed, for its key and
// name, and under the root with the fingerprint pin, or any root if that is empty.
func (n *node) check(pin string) error {
	reply, err := wire.DecodeReply(n.offer.reply)
	if err != nil {
		return err
	}
	e := reply.Enrolled
	if e == nil {
		return errors.New("no certificate in the reply")
	}
	if digest := wire.Digest(e.Certificate, e.Files); digest != e.Digest || digest != n.offer.digest {
		return fmt.Errorf("digest is %.16s, the provisioner says %.16s", digest, e.Digest)
	}
	chain, err := certificates([]byte(e.Certificate))
	if err != nil {
		return err
	}
	roots, err := certificates([]byte(e.CA))
	if err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	if len(chain) == 0 {
		return errors.New("certificate is no PEM")
	}
	leaf := chain[0]
	if key, ok := n.Key.Public().(*ecdsa.PublicKey); !ok || !key.Equal(leaf.PublicKey) {
		return errors.New("certificate is for another key")
	}
	if len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != n.Identity {
		return fmt.Errorf("certificate is for %q", leaf.DNSNames)
	}
	return verifyUnder(leaf, chain[1:], roots, pin, x509.VerifyOptions{
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// verifyUnder verifies a certificate under those of the roots that have the fingerprint pin, or all if that is empty.
func verifyUnder(leaf *x509.Certificate, between, roots []*x509.Certificate, pin string, o x509.VerifyOptions) error {
	o.Roots, o.Intermediates = x509.NewCertPool(), x509.NewCertPool()
	for _, c := range roots {
		if pin == "" || fingerprint(c) == pin {
			o.Roots.AddCert(c)
		}
	}
	for _, c := range between {
		o.Intermediates.AddCert(c)
	}
	_, err := leaf.Verify(o)
	return err
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

// brokerTLS accepts a broker for the host under the root with the fingerprint pin, which has to be in the chain that
// it presents, or any broker if pin is empty, as the agent does. A chain that was verified counts for all nodes: each
// handshake proves that the key is there.
func brokerTLS(host, pin string) *tls.Config {
	var known atomic.Pointer[[]byte] // the leaf that was verified last
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         host,
		InsecureSkipVerify: true, // VerifyConnection does it, by the pin
		VerifyConnection: func(cs tls.ConnectionState) error {
			leaf := cs.PeerCertificates[0]
			if k := known.Load(); pin == "" || k != nil && bytes.Equal(*k, leaf.Raw) {
				return nil
			}
			err := verifyUnder(leaf, cs.PeerCertificates[1:], cs.PeerCertificates, pin, x509.VerifyOptions{DNSName: host})
			if err != nil {
				return fmt.Errorf("broker under another authority than the token pins: %w", err)
			}
			known.Store(&leaf.Raw)
			return nil
		},
	}
}
