package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"muster/internal/wire"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

const (
	streamCertificates = "MUSTER_CERTIFICATES"

	subjectCertificate = "muster.certificate." // + identity + name
)

// No name has a `=`.
func certificateSubject(node wire.Identity, name string) string {
	return subjectCertificate + node.SubjectToken() + "." + strings.ReplaceAll(name, ".", "=")
}

// Certificate implements [services.Store].
func (s *Store) Certificate(ctx context.Context, node wire.Identity, name string,
) (*services.Certificate, trust.Revision, error) {
	if doubt := s.guard.doubt.Load(); doubt != nil {
		return nil, 0, fmt.Errorf("read service certificate %q of %q: %w", name, node, *doubt)
	}
	subject := certificateSubject(node, name)
	c, revision, err := getLast[services.Certificate](ctx, s.client, streamCertificates, subject)
	if c != nil && certificateSubject(c.Node, c.Name) != subject {
		return nil, revision, fmt.Errorf("read %s: %w: it is %q of %q", subject, trust.ErrRecord, c.Name, c.Node)
	}
	return c, revision, err
}

// PutCertificate implements [services.Store].
func (s *Store) PutCertificate(ctx context.Context, c *services.Certificate, after trust.Revision,
) (trust.Revision, error) {
	subject := certificateSubject(c.Node, c.Name)
	b, err := wire.EncodeJSON(c)
	if err == nil {
		err = s.useRoom(subject, b)
	}
	var revision uint64
	if err == nil {
		revision, err = s.batch(ctx, s.certificateWriter, subject, b, uint64(after))
	}
	if err != nil {
		return 0, fmt.Errorf("write service certificate %q of %q: %w", c.Name, c.Node, err)
	}
	if each := s.eachCertificate.Load(); each != nil {
		(*each)(c, trust.Revision(revision)) // before the answer, so that lists show it
	}
	return trust.Revision(revision), nil
}

// FollowCertificates implements [services.Store]. Call it once per Store.
func (s *Store) FollowCertificates(ctx context.Context, each func(*services.Certificate, trust.Revision),
) error {
	s.eachCertificate.Store(&each)
	err := s.certificates.Open(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil && !errors.Is(err, ErrDamaged) { // Run reports the damage
		return err
	}
	s.certificates.Run(ctx)
	return nil
}

// CertificatesFresh implements [services.Store].
func (s *Store) CertificatesFresh() error { return s.certificates.Fresh() }

func (s *Store) applyCertificate(m message) {
	c, err := decodeCertificate(m)
	if err != nil {
		s.log.Warn("service certificate not read", "subject", m.subject, "err", err)
		return
	}
	if each := s.eachCertificate.Load(); each != nil {
		(*each)(c, trust.Revision(m.sequence))
	}
}

func decodeCertificate(m message) (*services.Certificate, error) {
	return decodeAt(m, func(c *services.Certificate) string { return certificateSubject(c.Node, c.Name) })
}
