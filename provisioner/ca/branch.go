package ca

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
)

// BranchBackdate is for the clocks of Puppet agents.
const BranchBackdate = 24 * time.Hour

const branchSuffix = " Puppet CA"

// A Branch is an issuing CA that ends with its root.
type Branch struct {
	Issuing   *x509.Certificate
	Key       crypto.Signer // P-256
	BundlePEM string        // issuing certificate and root

	// RootCRLPEM lists nothing, since only another root key could revoke the issuing CA. It ends with the root.
	RootCRLPEM string
}

// NewBranch makes the issuing CA of [Config].Branch.
func NewBranch(root *x509.Certificate, rootKey crypto.Signer, now time.Time) (*Branch, error) {
	if !wire.SamePublicKey(root.PublicKey, rootKey.Public()) {
		return nil, errors.New("the key is not the root certificate's")
	}
	if root.KeyUsage&x509.KeyUsageCRLSign == 0 {
		return nil, errors.New("root certificate may not sign CRLs (key usage cRLSign), which Puppet agents need")
	}
	now = now.UTC().Truncate(time.Second)
	if err := checkValid("root", root, now); err != nil {
		return nil, err
	}
	since := slices.MaxFunc([]time.Time{root.NotBefore, now.Add(-BranchBackdate)}, time.Time.Compare)
	name, n := Generation(root)
	issuing, key, err := newAuthority(&x509.Certificate{
		Subject:        pkix.Name{CommonName: authorityName(name, branchSuffix, n)},
		NotBefore:      since,
		NotAfter:       root.NotAfter,
		MaxPathLenZero: true,
	}, root, rootKey)
	if err == nil {
		err = errors.Join(checkPair(root, issuing)...)
	}
	if err != nil {
		return nil, fmt.Errorf("generate issuing CA: %w", err)
	}
	crl, err := (&CRLRequest{Number: uint64(max(now.UnixMicro(), 1)), ThisUpdate: since, NextUpdate: root.NotAfter}).
		sign(root, rootKey)
	if err != nil {
		return nil, fmt.Errorf("CRL of the root: %w", err)
	}
	return &Branch{
		Issuing:    issuing,
		Key:        key,
		BundlePEM:  encodePEM(issuing.Raw) + encodePEM(root.Raw),
		RootCRLPEM: string(EncodeCRL(crl)),
	}, nil
}
