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

// UnpinnedTLS accepts every broker, as Choria's nodes do: with a token without a pin, a node cannot verify the broker.
func UnpinnedTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
}

// PinnedTLS accepts a broker named host if it presents the authority with the fingerprint pin. If public is set, it
// also accepts a broker certificate that this machine's roots verify: a TLS proxy cannot read sealed messages.
func PinnedTLS(pin, host string, public bool, now Clock) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         host,
		InsecureSkipVerify: true, // VerifyConnection verifies
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
	unpinned := func(c *x509.Certificate) bool { return fingerprint(c) != pin }
	pinned := slices.DeleteFunc(slices.Clone(chain), unpinned)
	if len(pinned) == 0 {
		return advice.Errorf(remedyPin+", or the broker sends its certificate without the root",
			"broker does not present the authority that the token pins, sha256 %.16s", pin)
	}
	if err := verify(chain, pool(pinned), host, now); err != nil {
		return err
	}
	return brokerRole(chain[0], domainOf(chain[0]))
}

// verify verifies a broker's chain; nil roots are the machine's.
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

// Nodes have certificates of the same authority, so the role must be checked.
func brokerRole(leaf *x509.Certificate, trustDomain string) error {
	role, name, err := wire.RoleOf(leaf, trustDomain)
	if err == nil && role == wire.RoleBroker {
		return nil
	}
	const remedy = "the peer is not a broker: check the address, or issue a broker certificate to it"
	if err != nil {
		return advice.New(err, remedy)
	}
	return advice.Errorf(remedy, "peer is %s %q, want a broker", role, name)
}

// TLS returns a configuration that presents the node's certificate and accepts the fleet's brokers.
func (c *Credentials) TLS(host string, now Clock) *tls.Config {
	roots := pool(c.Roots)
	return &tls.Config{
		// In TLS 1.3 a broker authenticates itself before it refuses a certificate; only such refusals count.
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{c.tls()},
		ServerName:         host,
		InsecureSkipVerify: true, // VerifyConnection verifies with the node's clock
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return errors.New("broker presents no certificate")
			}
			leaf := cs.PeerCertificates[0]
			start := latestStart(c.Leaf(), leaf)
			at := func(time.Time) time.Time { return now(start) }
			if err := verify(cs.PeerCertificates, roots, host, at); err != nil {
				return err
			}
			return brokerRole(leaf, c.TrustDomain)
		},
	}
}
