package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

const (
	// sweepEvery repeats what a lagging member of a cluster may have hidden.
	sweepEvery = 5 * time.Minute

	// maxRevoked keeps an entry within 128 KiB.
	maxRevoked = 1000
)

// follow keeps an entry, which may have been written while its node was revoked.
func (s *Service) follow(c *Certificate, at trust.Revision) {
	s.index.put(c, at)
	s.sweepSoon(c.Node)
}

// sweepSoon has the node swept if an entry is about it, as new ones about nodes are. So the work of a stopped
// provisioner is completed.
func (s *Service) sweepSoon(node wire.Identity) {
	if _, newest := s.p.Revocations().About(node); newest != 0 {
		s.p.EnforceSoon(node)
	}
}

// sweep revokes the certificates of an earlier owner of the name, or of a node that is revoked or retired. Repeating it
// is harmless.
func (s *Service) sweep(ctx context.Context, node wire.Identity) error {
	entries := s.index.of(node)
	if len(entries) == 0 {
		return nil
	}
	since, err := s.p.OwnedSince(ctx, node)
	if errors.Is(err, provisioner.ErrNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	former := slices.DeleteFunc(entries, func(c *Certificate) bool { return c.OwnedSince.Equal(since) })
	if err := s.revokeFormer(ctx, node, former); err != nil {
		return err
	}
	for _, c := range former {
		if c.Waiting == nil && c.State == nil {
			continue
		}
		if err := s.change(ctx, node, c.Name, func(c *Certificate) error {
			if !c.OwnedSince.Equal(since) {
				c.forget()
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) revokeFormer(ctx context.Context, node wire.Identity, entries []*Certificate) error {
	c := trust.Cause{By: "muster", Why: "another machine has the name of the node"}
	if by, _ := s.p.Revocations().About(node); by != nil {
		c = trust.Cause{By: by.By, Why: by.Why}
	}
	return s.revoke(ctx, node, "", entries, c)
}

// revoke revokes all unexpired certificates of the entries. An empty name stands for all of the node.
func (s *Service) revoke(ctx context.Context, node wire.Identity, name string, entries []*Certificate, c trust.Cause,
) error {
	var serials []trust.RevokedCertificate
	for _, e := range entries {
		serials = append(serials, e.unexpired(s.now())...)
	}
	serials = slices.DeleteFunc(serials,
		func(r trust.RevokedCertificate) bool { return s.index.revoked(r.Serial) != nil })
	if len(serials) == 0 {
		return nil
	}
	e := s.event(events.CertificateRevoked, node, name, c)
	slices.SortFunc(serials, func(a, b trust.RevokedCertificate) int { return cmp.Compare(a.Serial, b.Serial) })
	for some := range slices.Chunk(serials, maxRevoked) {
		r := trust.NewRevocation(trust.RevokedService, s.now(), c)
		r.Node, r.Name, r.Certificates = node, name, some
		r.ID = digest(fmt.Sprint(some)) // of another provisioner's entry too: then that is a conflict
		err := s.p.Revocations().Put(ctx, r, 0)
		if errors.Is(err, trust.ErrConflict) {
			err = s.logs.Sync(ctx)
		}
		if err != nil {
			return fmt.Errorf("revoke service certificates of %q: %w", node, err)
		}
	}
	s.own.Emit(e)
	s.own.Log.InfoContext(ctx, "service certificates revoked", "node", node, "name", name, "certificates", len(serials),
		"by", c.By, "why", c.Why)
	return nil
}

// endedFor is how long an alarm reports a certificate after its end.
const endedFor = 24 * time.Hour

func (s *Service) alarm(ctx context.Context) {
	var stuck, ending []*Certificate
	now := s.own.Now()
	for _, c := range s.index.of("") {
		if c.State != nil && c.State.Stuck {
			stuck = append(stuck, c)
		}
		if i := c.Current; i != nil && now.Sub(i.IssuedAt) > i.NotAfter.Sub(i.IssuedAt)*9/10 &&
			now.Sub(i.NotAfter) < endedFor && s.index.revoked(i.Serial) == nil {
			ending = append(ending, c)
		}
	}
	s.own.Alarms.Set(ctx, events.AlarmCertificatesStuck, example("stuck service certificates", stuck))
	s.own.Alarms.Set(ctx, events.AlarmCertificatesEnd, example("service certificates near or past their end", ending))
}

func example(what string, of []*Certificate) error {
	if len(of) == 0 {
		return nil
	}
	c := slices.MinFunc(of, func(a, b *Certificate) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name))
	})
	return fmt.Errorf("%s: %d, for example %s of %s", what, len(of), c.Name, c.Node)
}
