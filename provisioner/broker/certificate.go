package broker

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

// certificate checks validity by the gate's clock, usage and role. TLS has verified chain and key.
func (g *Gate) certificate(ctx context.Context, p Presented) (*Admission, error) {
	deadline, err := g.checkChain(p.Certificates)
	if err != nil {
		return nil, &Denied{wire.CodeDenied, err}
	}
	leaf := p.Certificates[0]
	role, name, err := wire.RoleOf(leaf, g.cfg.TrustDomain)
	if err != nil {
		return nil, &Denied{wire.CodeDenied, fmt.Errorf("%w: %w", ErrCertificate, err)}
	}
	if p.Nkey != "" {
		// The broker would report the nkey instead of the certificate's name.
		return nil, &Denied{wire.CodeBadRequest, fmt.Errorf("%w: sent together with a certificate", ErrNkey)}
	}
	switch role {
	case wire.RoleNode:
		return g.node(ctx, p, name, deadline)
	case wire.RoleProvisioner:
		return &Admission{Account: AccountMuster, User: name, Deadline: deadline}, nil
	default:
		err := fmt.Errorf("%w: role %q does not connect as a client", ErrCertificate, role)
		return nil, &Denied{wire.CodeDenied, err}
	}
}

func (g *Gate) node(ctx context.Context, p Presented, name string, deadline time.Time) (*Admission, error) {
	id, err := wire.ParseIdentity(name)
	if err != nil {
		return nil, &Denied{wire.CodeIdentityInvalid, fmt.Errorf("%w: %w", ErrCertificate, err)}
	}
	if !wire.ValidConnectionName(p.Name) {
		return nil, &Denied{wire.CodeBadRequest, fmt.Errorf("node %q: %w: %d bytes", id, ErrName, len(p.Name))}
	}
	c := certificateOf(p.Certificates[0])
	if err := g.cfg.AdmitNode(ctx, id, c); err != nil {
		d := deny(wire.CodeDenied, err)
		if d.Code == wire.CodeNotIssued && g.cfg.AdmitReturning != nil {
			if err = g.cfg.AdmitReturning(ctx, id, p.Certificates[0]); err == nil {
				return &Admission{
					Account:   AccountFleet,
					User:      string(id),
					Publish:   []string{wire.SubjectRenew},
					Subscribe: []string{wire.InboxPrefix(p.Name) + ".>"},
					Deadline:  deadline,
				}, nil
			}
			d = deny(wire.CodeDenied, err)
		}
		return nil, &Denied{d.Code, &NotAdmitted{id, c.Serial, d.Err}}
	}
	publish := []string{wire.RegistrationSubject(id), wire.SubjectApplied, wire.SubjectRenew,
		wire.SubjectCertificate}
	for _, t := range wire.EventTypes {
		publish = append(publish, wire.EventSubject(id, t))
	}
	return &Admission{
		Account:     AccountFleet,
		User:        string(id),
		Publish:     publish,
		Subscribe:   []string{wire.CommandSubject(id), wire.InboxPrefix(p.Name) + ".>"},
		Responses:   commandResponses,
		ResponseTTL: commandResponseTTL,
		Deadline:    deadline,
	}, nil
}

func certificateOf(c *x509.Certificate) Certificate {
	return Certificate{Serial: ca.Serial(c), SHA256: wire.Sum(c.Raw)}
}

// checkChain returns the earliest expiry in chain.
func (g *Gate) checkChain(chain []*x509.Certificate) (time.Time, error) {
	now, deadline := g.cfg.Now(), chain[0].NotAfter
	for _, cert := range chain {
		if now.Before(cert.NotBefore) {
			return time.Time{}, fmt.Errorf("%w: %.200q is not valid before %s", ErrCertificate,
				cert.Subject.CommonName, cert.NotBefore.UTC().Format(time.RFC3339))
		}
		if !now.Before(cert.NotAfter) {
			return time.Time{}, fmt.Errorf("%w: %.200q expired at %s", ErrCertificate,
				cert.Subject.CommonName, cert.NotAfter.UTC().Format(time.RFC3339))
		}
		if cert.NotAfter.Before(deadline) {
			deadline = cert.NotAfter
		}
	}
	if leaf := chain[0]; leaf.IsCA || !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
		return time.Time{}, fmt.Errorf("%w: not for client authentication", ErrCertificate)
	}
	return deadline, nil
}
