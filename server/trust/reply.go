package trust

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"muster/internal/wire"
	"muster/server/advice"
)

const remedySigned = "if the provisioner's log shows no error, something on the network alters replies: " +
	"find it, or sign the token with --seal"

// CheckReply checks that a provisioner of the authority has signed r, the reply to id's request as it was sent. own is
// nil, or the credentials that r offers or confirms. Without a pin and known roots, the reply's own roots count.
//
// Expiry bounds the use of a stolen key. A clock that is behind does not help it much: own tells the time, too.
func (a Authority) CheckReply(r *wire.Reply, id wire.Identity, request []byte, own *Credentials, now Clock) error {
	signer, err := a.Provisioner(r.Provisioner, own, now)
	if err == nil {
		err = wire.CheckSignature(signer.PublicKey, wire.ReplyDigest(r, string(id), request), r.Signature)
	}
	if err != nil {
		return advice.Errorf(remedySigned, "no provisioner of this fleet has signed it: %w", err)
	}
	return nil
}

// Provisioner checks certificates in DER as in [wire.Reply], and returns the first one, a provisioner's. own as in
// [Authority.CheckReply]. The error may wrap [ErrExpired].
func (a Authority) Provisioner(der [][]byte, own *Credentials, now Clock) (*x509.Certificate, error) {
	if n := len(der); n == 0 || n > maxCertificates {
		return nil, fmt.Errorf("%d certificates, want 1 to %d", n, maxCertificates)
	}
	var chain []*x509.Certificate
	for _, b := range der {
		c, err := x509.ParseCertificate(b)
		if err != nil {
			return nil, err
		}
		chain = append(chain, c)
	}
	leaf, domain, dated, roots := chain[0], domainOf(chain[0]), chain, slices.Clone(chain)
	if own != nil {
		domain, dated, roots = own.TrustDomain, append(own.Chain[:1:1], chain...), append(roots, own.Roots...)
	}
	roots = slices.DeleteFunc(roots, func(c *x509.Certificate) bool {
		return fingerprint(c) != a.Pin && (a.Pin != "" || a.Known != nil || !wire.SelfSigned(c))
	})
	role, name, err := wire.RoleOf(leaf, domain)
	switch {
	case err != nil:
		return nil, err
	case role != wire.RoleProvisioner || leaf.IsCA || leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return nil, fmt.Errorf("the certificate is of %s %q, want a provisioner's for signatures", role, name)
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots:         pool(append(roots, a.Known...)),
		Intermediates: pool(chain[1:]),
		CurrentTime:   now(latestStart(dated...)),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		err = fmt.Errorf("%w: %w", ErrExpired, err)
	}
	return leaf, err
}
