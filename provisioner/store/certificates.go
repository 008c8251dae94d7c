package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"muster/internal/wire"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

const (
	streamCertificates = "MUSTER_CERTIFICATES"

	subjectCertificate = "muster.certificate." // + identity + name
)

// certificateSubject writes the dots of a name as `=`, which no name has.
func certificateSubject(node wire.Identity, name string) string {
	return subjectCertificate + node.SubjectToken() + "." + strings.ReplaceAll(name, ".", "=")
}

// A CertificateStore keeps the service certificates of nodes.
type CertificateStore struct {
	*client

	// Issuing is the number of requests in progress that will probably write.
	Issuing atomic.Int64

	batcher  *batcher // nil if each write is sent alone
	follower *Follower
	each     atomic.Pointer[func(*services.Certificate, trust.Revision)]
}

// Certificate implements [services.Store].
func (s *CertificateStore) Certificate(ctx context.Context, node wire.Identity, name string,
) (*services.Certificate, trust.Revision, error) {
	if doubt := s.guard.doubt.Load(); doubt != nil {
		return nil, 0, fmt.Errorf("read service certificate %q of %q: %w", name, node, *doubt)
	}
	subject := certificateSubject(node, name)
	c, revision, err := getLast[services.Certificate](ctx, s.client, streamCertificates, subject)
	if c != nil && certificateSubject(c.Node, c.Name) != subject {
		c, err = nil, fmt.Errorf("%w: it is %q of %q", trust.ErrRecord, c.Name, c.Node)
	}
	if err != nil {
		return nil, revision, fmt.Errorf("read service certificate %q of %q: %w", name, node, err)
	}
	return c, revision, nil
}

// PutCertificate implements [services.Store].
func (s *CertificateStore) PutCertificate(ctx context.Context, c *services.Certificate, after trust.Revision,
) (trust.Revision, error) {
	subject := certificateSubject(c.Node, c.Name)
	b, err := wire.EncodeJSON(c)
	if err == nil {
		err = s.useRoom(subject, b)
	}
	var revision uint64
	switch {
	case err != nil:
	case s.batcher == nil:
		revision, err = s.publish(ctx, subject, b, uint64(after))
	default:
		revision, err = s.batcher.put(ctx, subject, b, uint64(after))
	}
	if err != nil {
		return 0, fmt.Errorf("write service certificate %q of %q: %w", c.Name, c.Node, err)
	}
	if each := s.each.Load(); each != nil {
		(*each)(c, trust.Revision(revision)) // before the answer, so that lists show it
	}
	return trust.Revision(revision), nil
}

// FollowCertificates implements [services.Store]. Call it once per Store.
func (s *CertificateStore) FollowCertificates(ctx context.Context, each func(*services.Certificate, trust.Revision),
) error {
	s.each.Store(&each)
	err := s.follower.Open(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil && !errors.Is(err, ErrDamaged) { // Run reports the damage
		return err
	}
	s.follower.Run(ctx)
	return nil
}

// CertificatesFresh implements [services.Store].
func (s *CertificateStore) CertificatesFresh() error { return s.follower.Fresh() }

// apply implements applier.
func (s *CertificateStore) apply(m message) {
	c, err := decodeCertificate(m)
	if err != nil {
		s.log.Warn("service certificate not read", "subject", m.subject, "err", err)
		return
	}
	if each := s.each.Load(); each != nil {
		(*each)(c, trust.Revision(m.sequence))
	}
}

func decodeCertificate(m message) (*services.Certificate, error) {
	var c services.Certificate
	if err := decode(m.data, &c); err != nil {
		return nil, fmt.Errorf("sequence %d: %w", m.sequence, err)
	}
	if m.subject != certificateSubject(c.Node, c.Name) {
		return nil, fmt.Errorf("sequence %d: %q of %q is on subject %s", m.sequence, c.Name, c.Node, m.subject)
	}
	return &c, nil
}
