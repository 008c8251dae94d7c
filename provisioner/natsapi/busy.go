package natsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"runtime"

	"muster/internal/wire"
	"muster/provisioner"
)

// Even a busy reply costs work: the id must be decoded and a sealed request opened. So the replies have their own queue
// and workers, for at most half of the cores. If this queue is full too, there is no reply.

// The queue of busy replies has room for 13,000 requests with 2 KB of facts. A request takes at least 1 KiB.
const (
	maxExcessBytes   = 64 << 20
	excessPlaceBytes = 1 << 10
)

func busyWorkers() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// busy sends a busy reply. If the message cannot be opened, the reply is not sealed.
func (s *Service) busy(ctx context.Context, c *call) {
	defer s.survive(ctx, c.Msg)
	s.cfg.Busy()
	data := c.Data
	if s.cfg.Opener != nil && bytes.HasPrefix(data, sealedPrefix) {
		data, _ = s.open(c) // an error is reported when a later try has room
		s.refund(c)         // the content is not checked here
	}
	var peek struct {
		Body struct {
			ID string `json:"id"`
		} `json:"body"`
	}
	if len(data) <= wire.MaxMessageBytes {
		_ = json.Unmarshal(data, &peek) // likewise
	}
	after := s.backlog.Next
	if s.isApplied(c.Msg) {
		after = s.backlog.Soon
	}
	refusal := (&provisioner.Refusal{Code: wire.CodeBusy, After: after()}).Message()
	s.respond(ctx, c, &wire.Reply{ID: peek.Body.ID, Refusal: refusal})
}
