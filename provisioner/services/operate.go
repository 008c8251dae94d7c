package services

import (
	"context"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// ApprovalTTL is how long an approval waits for the node.
const ApprovalTTL = 24 * time.Hour

// Approve lets a waiting request have its certificate. id is [Waiting.ID] as the operator saw it, or "" for the present
// one. Renewals with the same names need no other approval. The error is [ErrNone], or [trust.ErrState] if the request
// does not wait for an approval or is another one.
func (s *Service) Approve(ctx context.Context, node wire.Identity, name, id string, c trust.Cause) error {
	return s.answer(ctx, node, name, id, orders.VerdictApprove, c)
}

// Reject refuses a request until it is approved; its arguments and errors are those of [Service.Approve].
func (s *Service) Reject(ctx context.Context, node wire.Identity, name, id string, c trust.Cause) error {
	return s.answer(ctx, node, name, id, orders.VerdictReject, c)
}

func (s *Service) answer(
	ctx context.Context, node wire.Identity, name, id string, v orders.Verdict, c trust.Cause,
) error {
	if err := c.Check(); err != nil {
		return &provisioner.OrderError{Err: err}
	}
	e := s.event(events.CertificateApproved, node, name, c)
	if v == orders.VerdictReject {
		e.Type = events.CertificateRejected
	}
	err := s.change(ctx, node, name, func(next *Certificate) error {
		w := next.Waiting
		switch {
		case !s.index.asks(next) || w.Code != wire.CodeApprovalPending && w.Code != wire.CodeRejected:
			return fmt.Errorf("%w: it does not wait for an approval", trust.ErrState)
		case id != "" && id != w.ID:
			return fmt.Errorf("%w: the node asks for other names or with another key since it was shown",
				trust.ErrState)
		}
		answered := *w
		answered.Answer = &Answer{Verdict: v, At: s.now(), Cause: c}
		if v == orders.VerdictApprove {
			answered.Answer.ExpiresAt = answered.Answer.At.Add(ApprovalTTL)
		}
		next.Waiting, e.Key = &answered, w.KeyHash
		return nil
	})
	if err == nil {
		s.own.Emit(e)
		s.own.Log.InfoContext(ctx, "request for a service certificate answered", "node", node, "name", name, "subject",
			e.Type, "by", c.By, "why", c.Why)
	}
	return err
}

// Revoke puts all unexpired certificates of an entry on the CRL. The node may ask for another one with a new key. The
// error is [ErrNone], or [trust.ErrUnacknowledged].
func (s *Service) Revoke(ctx context.Context, node wire.Identity, name string, c trust.Cause) error {
	if err := c.Check(); err != nil {
		return &provisioner.OrderError{Err: err}
	}
	return s.change(ctx, node, name, func(next *Certificate) error {
		next.forget()
		return s.revoke(ctx, node, name, []*Certificate{next}, c)
	})
}
