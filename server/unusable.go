package server

import (
	"context"
	"crypto"
	"fmt"

	"muster/internal/wire"
)

// What the node cannot use.
//
// A node refuses a reply that does not pass its checks, or that it cannot put on its disk,
// and asks again. To the provisioner that looks like a reply that was lost; but where the
// policy has slipped, it is the whole fleet that asks again, and nobody but the provisioner
// has people who look. So the node says what it cannot use, and why (see [wire.Unusable]).

// maxOffered bounds serial and digest of an offer that is complained of, which are the
// sender's word: 32 and 64 digits.
const maxOffered = 64

// A complaint is the last one that was heard.
type complaint struct {
	about string
	again deadline // when to repeat it
}

// complain says that an offer cannot be used: over the connection that it came on, signed by
// the key that it is for. The same is said again after an hour, since whoever was told may
// have died of it, and alarms of hours end. What nobody hears is said with the next attempt.
func (s *Server) complain(ctx context.Context, conn *connection, key crypto.Signer, offer pending, why error) {
	if len(offer.Serial) > maxOffered || len(offer.Digest) > maxOffered {
		return // nobody has offered that
	}
	digest := wire.Unusable(offer.Digest, why.Error())
	about := offer.Serial + " " + gist(digest)
	if s.complained.about == about && !s.come(s.complained.again) {
		return
	}
	err := s.sayUnusable(ctx, conn, key, offer, digest)
	if err != nil {
		s.cfg.Log.DebugContext(ctx, "complaint not heard", "node", offer.Identity, "err", err)
		return
	}
	s.complained = complaint{about: about, again: s.in(toldAgain)}
}

func (s *Server) sayUnusable(ctx context.Context, conn *connection, key crypto.Signer, offer pending, digest string) error {
	offer.Digest = digest
	reply, err := s.tellApplied(ctx, conn, key, offer)
	switch {
	case err != nil:
		return err
	case reply.Refusal == nil:
		return fmt.Errorf("%w: not an answer to a complaint", errReply)
	}
	switch r := (refusal{reply.Refusal}); r.Code {
	case wire.CodeOfferUnusable:
	case wire.CodeNotIssued: // of a provisioner of before, which takes it for a confirmation of something else
	default:
		return r
	}
	return nil
}
