package provisioner

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner/trust"
)

// checkNames judges the names and addresses that the policy adds to a certificate, as the identity was judged at the
// enrollment.
func (a *attempt) checkNames(ctx context.Context) error {
	c := &a.decision.Certificate
	if len(c.DNSNames) == 0 && len(c.IPAddresses) == 0 {
		return nil
	}
	err := checkAdded(a.identity, c, a.token, a.cfg.Reserved)
	for _, name := range c.DNSNames {
		if err == nil && name != string(a.identity) {
			err = a.checkForeign(ctx, wire.Identity(name))
		}
	}
	if _, ok := errors.AsType[*Refusal](err); err == nil || ok {
		return err
	}
	return refuse(wire.CodeCertificateFailed, fmt.Errorf("policy: certificate: %w", err))
}

func checkAdded(id wire.Identity, c *policies.Certificate, token *jwt.Verified,
	reserved func(string, *jwt.Verified) error) error {
	if err := c.Check(); err != nil {
		return err
	}
	for _, name := range slices.Concat(c.DNSNames, c.IPAddresses) {
		if name == string(id) {
			continue
		}
		if err := reserved(name, token); err != nil {
			return err
		}
	}
	return nil
}

// checkForeign refuses the identity of another node. A name that the node's certificate has stays: else another node
// could end its renewals by enrolling under this name.
func (a *attempt) checkForeign(ctx context.Context, name wire.Identity) error {
	other, _, err := a.cfg.Store.Record(ctx, name)
	if err != nil && !errors.Is(err, trust.ErrRecord) { // an unreadable record keeps its name
		return refuse(StoreCode(err), err)
	}
	if err == nil && (other == nil || other.State == StateRetired) || a.record.certifies(name) {
		return nil
	}
	return errForeign(name)
}

func errForeign(name wire.Identity) error {
	return fmt.Errorf("dns_names: %s is the identity of another node", name)
}

// certifies reports whether the present certificate, or the offer, has the DNS name.
func (r *Record) certifies(name wire.Identity) bool {
	if r == nil || r.State == StateRetired {
		return false
	}
	return slices.ContainsFunc([]*Issued{r.Current, r.Next}, func(i *Issued) bool {
		if i == nil {
			return false
		}
		c, err := x509.ParseCertificate(i.DER)
		return err == nil && slices.Contains(c.DNSNames, string(name))
	})
}
