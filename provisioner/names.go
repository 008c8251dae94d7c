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

// checkNames judges the names and addresses that the policy adds to a certificate, as the identity was judged.
func (a *attempt) checkNames(ctx context.Context) error {
	c := &a.decision.Certificate
	if len(c.DNSNames) == 0 && len(c.IPAddresses) == 0 {
		return nil
	}
	err := checkAdded(a.identity, c, a.token, a.cfg.Reserved)
	if err == nil {
		read := func(ctx context.Context, id wire.Identity) (*Record, error) {
			r, _, err := a.cfg.Store.Record(ctx, id)
			return r, err
		}
		err = a.record.checkForeign(ctx, a.identity, c.DNSNames, read)
	}
	if err == nil {
		return nil
	}
	return RefusalOf(fmt.Errorf("policy: certificate: %w", err), wire.CodeCertificateFailed)
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

// checkForeign refuses the identities of other nodes. A name that the node's certificate has stays: else enrolling
// under it would end the node's renewals.
func (r *Record) checkForeign(ctx context.Context, id wire.Identity, names []string,
	read func(context.Context, wire.Identity) (*Record, error)) error {
	for _, name := range names {
		if name == string(id) {
			continue
		}
		other, err := read(ctx, wire.Identity(name))
		if err != nil && !errors.Is(err, trust.ErrRecord) { // an unreadable record keeps its name
			return refuse(StoreCode(err), err)
		}
		if (err != nil || other != nil && other.State != StateRetired) && !r.certifies(wire.Identity(name)) {
			return fmt.Errorf("dns_names: %s is the identity of another node", name)
		}
	}
	return nil
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
