package server

import (
	"context"
	"crypto"
	"fmt"
	"time"

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
	again deadline      // when to repeat it
	wait  time.Duration // before whoever complains asks again, as the provisioner said; 0: it did not
}

// complain says that an offer cannot be used: over the connection that it came on, signed by
// the key that it is for. The same is said again after an hour, since a process that was told
// may have told nobody, and alarms look back for hours. What nobody hears is said with the
// next attempt.
//
// It returns why, and with it how long to wait, see slowedBy: people are to correct what the
// provisioner gives out, for all nodes mostly.
func (s *Server) complain(ctx context.Context, conn *connection, key crypto.Signer, offer pending, why error) error {
	if len(offer.Serial) > maxOffered || len(offer.Digest) > maxOffered {
		return why // nobody has offered that
	}
	digest := wire.Unusable(offer.Digest, why.Error())
	about := offer.Serial + " " + gist(digest)
	if s.complained.about != about || s.come(s.complained.again) {
		wait, err := s.sayUnusable(ctx, conn, key, offer, digest)
		if err != nil {
			s.cfg.Log.DebugContext(ctx, "complaint not heard", "node", offer.Identity, "err", err)
			if wait := slowedBy(err); wait > 0 {
				return &slowed{why, wait}
			}
			return why
		}
		s.complained = complaint{about: about, again: s.in(toldAgain), wait: wait}
	}
	if s.complained.wait == 0 {
		return why
	}
	return &slowed{why, s.newBackoff().told(s.complained.wait)}
}

func (s *Server) sayUnusable(ctx context.Context, conn *connection, key crypto.Signer, offer pending, digest string) (wait time.Duration, err error) {
	offer.Digest = digest
	reply, err := s.tellApplied(ctx, conn, key, offer)
	switch {
	case err != nil:
		return 0, err
	case reply.Refusal == nil:
		return 0, fmt.Errorf("%w: not an answer to a complaint", errReply)
	}
	switch r := (refusal{reply.Refusal}); r.Code {
	case wire.CodeOfferUnusable:
		return r.Wait(), nil
	case wire.CodeNotIssued: // of a provisioner of before, which takes it for a confirmation of something else
		return 0, nil
	default:
		if r.Wait() == 0 {
			return 0, r
		}
		return 0, &slowed{r, s.newBackoff().told(r.Wait())}
	}
}
