package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/server/advice"
)

// UnpinnedTLS accepts every broker: a node whose token pins no authority has
// none to verify by, as Choria's nodes have not.
func UnpinnedTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
}

// PinnedTLS accepts a broker named host under the authority with the
// fingerprint pin, which has to be among the certificates that it presents. If
// public is set, it also accepts a certificate for host of an authority that
// this machine trusts: a proxy in front of the broker that ends TLS, which reads
// nothing where all that is sent is sealed.
func PinnedTLS(pin, host string, public bool, now Clock) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         host,
		InsecureSkipVerify: true, // VerifyConnection does it, by the pin
		VerifyConnection: func(cs tls.ConnectionState) error {
			err := verifyPinned(cs.PeerCertificates, pin, host, now)
			if err != nil && public && verify(cs.PeerCertificates, nil, host, now) == nil {
				return nil
			}
			return err
		},
	}
}

func verifyPinned(chain []*x509.Certificate, pin, host string, now Clock) error {
	pinned := slices.DeleteFunc(slices.Clone(chain), func(c *x509.Certificate) bool { return fingerprint(c) != pin })
	if len(pinned) == 0 {
		return advice.Errorf(remedyPin+", or the broker sends its certificate without the root",
			"broker does not present the authority that the token pins, sha256 %.16s", pin)
	}
	if err := verify(chain, pool(pinned), host, now); err != nil {
		return err
	}
	return brokerRole(chain[0], domainOf(chain[0]))
}

// verify verifies a broker's chain; roots are the machine's if nil.
func verify(chain []*x509.Certificate, roots *x509.CertPool, host string, now Clock) error {
	if len(chain) == 0 {
		return errors.New("broker presents no certificate")
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: pool(chain[1:]),
		DNSName:       host,
		CurrentTime:   now(chain[0].NotBefore),
	})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}

// brokerRole checks that a verified certificate is a broker's: every node has
// one of the same authority.
func brokerRole(leaf *x509.Certificate, trustDomain string) error {
	role, name, err := wire.RoleOf(leaf, trustDomain)
	if err == nil && role == wire.RoleBroker {
		return nil
	}
	const remedy = "something that is no broker answers there: issue the broker a broker certificate"
	if err != nil {
		return advice.New(err, remedy)
	}
	return advice.Errorf(remedy, "peer is %s %q, want a broker", role, name)
}

// TLS presents the node's certificate and accepts the fleet's brokers.
func (c *Credentials) TLS(host string, now Clock) *tls.Config {
	roots := pool(c.Roots)
	return &tls.Config{
		// In TLS 1.3 a broker refuses a certificate after it has proven itself, and
		// only such a refusal counts. Every broker of this fleet speaks it.
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{c.tls()},
		ServerName:         host,
		InsecureSkipVerify: true, // VerifyConnection does it, by the node's clock
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return errors.New("broker presents no certificate")
			}
			leaf := cs.PeerCertificates[0]
			start := latestStart(c.Leaf(), leaf)
			if err := verify(cs.PeerCertificates, roots, host, func(time.Time) time.Time { return now(start) }); err != nil {
				return err
			}
			return brokerRole(leaf, c.TrustDomain)
		},
	}
}
