package services

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

const (
	sweepEvery   = 5 * time.Minute
	sweepAgain   = time.Second
	sweepTimeout = 10 * time.Second

	// maxRevoked keeps an entry within 128 KiB.
	maxRevoked = 1000
)

func (s *Service) sweepSoon(node wire.Identity) {
	s.mu.Lock()
	s.due[node] = struct{}{}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // already signaled
	}
}

// sweepEveryone finds certificates that were written while their node was revoked.
func (s *Service) sweepEveryone(context.Context) {
	s.index.mu.RLock()
	nodes := slices.Collect(maps.Keys(s.index.nodes))
	s.index.mu.RUnlock()
	for _, node := range nodes {
		if _, about := s.p.Revocations().About(node); about != 0 {
			s.sweepSoon(node)
		}
	}
}

// sweepAll runs in every provisioner, so that the work of a stopped one is completed. At the start all nodes with
// revocations are due.
func (s *Service) sweepAll(ctx context.Context) {
	for {
		var again <-chan time.Time
		s.mu.Lock()
		nodes := slices.Collect(maps.Keys(s.due))
		s.mu.Unlock()
		for _, node := range nodes {
			if err := s.sweepOne(ctx, node); err != nil {
				again = time.After(sweepAgain)
				s.own.Log.WarnContext(ctx, "service certificates not revoked yet", "node", node, "err", err)
			}
			if ctx.Err() != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-again:
		}
	}
}

func (s *Service) sweepOne(ctx context.Context, node wire.Identity) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	if err := s.index.Fresh(); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.due, node)
	s.mu.Unlock()
	err := s.sweep(ctx, node)
	if err != nil {
		s.mu.Lock()
		s.due[node] = struct{}{}
		s.mu.Unlock()
	}
	return err
}

// sweep revokes the certificates that an earlier owner of the name got. Repeating it is harmless.
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
	entries = slices.DeleteFunc(entries, func(c *Certificate) bool { return c.OwnedSince.Equal(since) })
	if err := s.revokeFormer(ctx, node, entries); err != nil {
		return err
	}
	for _, c := range entries {
		if c.Waiting == nil && c.State == nil {
			continue
		}
		err := s.change(ctx, node, c.Name, func(c *Certificate) error {
			if c.OwnedSince.Equal(since) {
				return errAgain // the new owner's
			}
			c.Waiting, c.State, c.Approval = nil, nil, nil
			return nil
		})
		if err != nil && !errors.Is(err, errAgain) {
			return err
		}
	}
	return nil
}

func (s *Service) revokeFormer(ctx context.Context, node wire.Identity, entries []*Certificate) error {
	c := trust.Cause{By: "muster", Why: "the name of the node has another owner"}
	if by, _ := s.p.Revocations().About(node); by != nil {
		c = trust.Cause{By: by.By, Why: by.Why}
	}
	return s.revoke(ctx, node, "", entries, c)
}

// revoke writes a revocation of all unexpired certificates of the entries, unless all are revoked. name is empty for
// all entries of the node.
func (s *Service) revoke(ctx context.Context, node wire.Identity, name string, entries []*Certificate, c trust.Cause,
) error {
	var serials []trust.RevokedCertificate
	for _, e := range entries {
		for _, r := range e.unexpired(s.now()) {
			if s.index.revoked(r.Serial) == nil {
				serials = append(serials, r)
			}
		}
	}
	slices.SortFunc(serials, func(a, b trust.RevokedCertificate) int { return cmp.Compare(a.Serial, b.Serial) })
	for some := range slices.Chunk(serials, maxRevoked) {
		r := trust.NewRevocation(trust.RevokedService, s.now(), c)
		r.Node, r.Name, r.Certificates = node, name, some
		r.ID = revocationID(some)
		// A conflict is the same entry of another provisioner.
		err := s.p.Revocations().Put(ctx, r, 0)
		if errors.Is(err, trust.ErrConflict) {
			err = s.logs.Sync(ctx)
		}
		if err != nil {
			return fmt.Errorf("revoke service certificates of %q: %w", node, err)
		}
	}
	if len(serials) > 0 {
		s.report(ctx, "service certificates revoked", events.Event{
			Type: events.CertificateRevoked,
			Node: string(node),
			Name: name,
			By:   c.By,
			Why:  c.Why,
		}, "certificates", len(serials))
	}
	return nil
}

func revocationID(certificates []trust.RevokedCertificate) string {
	var all strings.Builder
	for _, c := range certificates {
		all.WriteString(c.Serial + "\n")
	}
	sum := sha256.Sum256([]byte(all.String()))
	return hex.EncodeToString(sum[:16])
}

// unexpired returns the certificates for a CRL.
func (c *Certificate) unexpired(now time.Time) []trust.RevokedCertificate {
	all := slices.Clone(c.Former)
	if c.Current != nil {
		all = append(all, c.Current.RevokedCertificate)
	}
	return slices.DeleteFunc(all, func(r trust.RevokedCertificate) bool { return !now.Before(r.NotAfter) })
}

// endedFor is how long an alarm reports a certificate after its end.
const endedFor = 24 * time.Hour

// alarm reports what an operator must look at.
func (s *Service) alarm(ctx context.Context) {
	if s.index.Fresh() != nil {
		return
	}
	var stuck, ending int
	var firstStuck, firstEnding Listed
	now := s.own.Now()
	first := func(l, of Listed) Listed { // the same one each time
		if of.Node == "" || l.Node < of.Node || l.Node == of.Node && l.Name < of.Name {
			return l
		}
		return of
	}
	s.index.each(func(c *Certificate) {
		if i := c.Current; i != nil && s.index.revoked(i.Serial) == nil && now.Sub(i.NotAfter) < endedFor &&
			now.Sub(i.IssuedAt) > i.NotAfter.Sub(i.IssuedAt)*9/10 {
			ending++
			firstEnding = first(s.index.listed(c), firstEnding)
		}
		if c.State != nil && c.State.Stuck {
			stuck++
			firstStuck = first(s.index.listed(c), firstStuck)
		}
	})
	var errStuck, errEnding error
	if stuck > 0 {
		errStuck = fmt.Errorf("%d service certificates are stuck, for example %s of %s: %s", stuck, firstStuck.Name,
			firstStuck.Node, firstStuck.Note)
	}
	if ending > 0 {
		errEnding = fmt.Errorf("%d service certificates are near or past their end, for example %s of %s, at %s", ending,
			firstEnding.Name, firstEnding.Node, firstEnding.Expires.UTC().Format(time.RFC3339))
	}
	s.own.Alarms.Set(ctx, events.AlarmCertificatesStuck, errStuck)
	s.own.Alarms.Set(ctx, events.AlarmCertificatesEnd, errEnding)
}
