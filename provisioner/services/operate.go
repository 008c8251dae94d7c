package services

import (
	"context"
	"time"

	"muster/internal/wire"
	"muster/provisioner/trust"
)

// ApprovalTTL is how long an approval waits for the node.
const ApprovalTTL = 24 * time.Hour

// Approve lets a waiting request have its certificate. id is [Waiting.ID] as the operator saw it, or "" for the present
// one. Renewals with the same names need no other approval. The error is [ErrNone], or [trust.ErrState] if the request
// does not wait for an approval or is another one.
func (s *Service) Approve(context.Context, wire.Identity, string, string, trust.Cause) error {
	return errUnfinished
}

// Reject refuses a request for good; its arguments and errors are those of [Service.Approve].
func (s *Service) Reject(context.Context, wire.Identity, string, string, trust.Cause) error {
	return errUnfinished
}

// Revoke puts all unexpired certificates of an entry on the CRL. The node may ask for another one with a new key. The
// error is [ErrNone], or [trust.ErrUnacknowledged].
func (s *Service) Revoke(context.Context, wire.Identity, string, trust.Cause) error {
	return errUnfinished
}
