package server

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
)

// errDisowned means that the provisioner does not know the certificate, or not
// as this node's: the node has to enroll again.
var errDisowned = errors.New("certificate is disowned by the provisioner")

// confirmTries is how often a confirmation is sent over the connection that
// brought the certificate, before normal mode takes over; chosen.
const confirmTries = 3

// confirmSoon confirms over the connection of the enrollment.
func (s *Server) confirmSoon(ctx context.Context, conn *connection, stage *stage, p pending) error {
	wait := s.newBackoff()
	for try := 1; ; try++ {
		after, err := s.confirm(ctx, conn, stage.key, p)
		if err == nil || errors.Is(err, errDisowned) || try == confirmTries || conn.IsClosed() || ctx.Err() != nil {
			return err
		}
		s.pause(ctx, max(wait.next(), min(after, s.cfg.RequestTimeout)), s.fingerprints())
	}
}

// confirm tells the provisioner that the set is in force, and drops what is
// pending once that is on record; what cannot be dropped, this agent does not confirm
// again. It may be on record after an error too, and is then acknowledged again. The
// duration is how long to wait with the next try, if the provisioner said so. The
// error may wrap errDisowned.
func (s *Server) confirm(ctx context.Context, conn *connection, key crypto.Signer, p pending) (time.Duration, error) {
	if err := s.syncNames(); err != nil { // or a power cut would bring back the set before
		return 0, fmt.Errorf("put the set on disk: %w", err)
	}
	if wait, err := s.sendConfirmation(ctx, conn, key, p); err != nil {
		return wait, err
	}
	s.announce, s.nextRecheck = true, s.in(recheckEvery)
	if err := s.keepConfirmed(); err != nil {
		s.stays = &p
		s.cfg.Log.WarnContext(ctx, "confirmation is accepted, and stays on disk: the next agent confirms once more", "node", p.Identity, "serial", p.Serial,
			"err", err, "remedy", remedyOf(explain(err, peer{})))
	}
	return 0, nil
}

// sendConfirmation is the part of confirm that leaves the disk alone.
func (s *Server) sendConfirmation(ctx context.Context, conn *connection, key crypto.Signer, p pending) (time.Duration, error) {
	reply, err := s.tellApplied(ctx, conn, key, p)
	switch {
	case err != nil:
		return slowedBy(err), err
	case reply.Refusal != nil:
		r := refusal{reply.Refusal}
		if r.Code == wire.CodeNotIssued || r.Code == wire.CodeAppliedSignature {
			return r.Wait(), &cause{what: fmt.Errorf("%w: %w", errDisowned, r), remedy: r.remedy()}
		}
		return r.Wait(), &cause{what: r, remedy: r.remedy()}
	case reply.Applied == nil || reply.Applied.Serial != p.Serial:
		return 0, fmt.Errorf("%w: not an answer to a confirmation", errReply)
	}
	return 0, nil
}

// tellApplied sends p, signed by the key that it is about.
func (s *Server) tellApplied(ctx context.Context, conn *connection, key crypto.Signer, p pending) (*wire.Reply, error) {
	signature, err := wire.Sign(key, wire.AppliedDigest(p.Identity, p.Serial, p.Digest))
	if err != nil {
		return nil, err
	}
	applied := wire.Applied{ID: wire.NewID(), Identity: p.Identity, Serial: p.Serial, Digest: p.Digest, Signature: signature}
	return s.request(ctx, conn, wire.SubjectApplied, applied.ID, &applied)
}
