package natsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"runtime"

	"muster/internal/wire"
	"muster/provisioner"
)

// Requests for which there is no room wait to be told so. Telling takes work,
// too: the id is decoded, since a node ignores replies without it, and a sealed
// request is opened, since the node would not believe a plain reply. So it is
// done by a few goroutines of its own and never by the subscription's, and at
// most by half of the cores, so that refusing does not keep from serving.
//
// The room for them is shared by address, too (see [line]). A request that finds no room there either is not
// answered: its node waits out its time for an answer and comes back with its own backoff.

// What waits to be told, half of it from one address at most: 8,000 machines with 2 KB of facts.
// Each takes a kilobyte however short it is.
const (
	maxExcessBytes = 64 << 20
	excessPlace    = 1 << 10
)

// busyWorkers is how many goroutines say `busy`.
func busyWorkers() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// busy answers a request that there is no room for. One that does not open is
// answered in plain: that slows the node as long as it may, no more.
func (s *Service) busy(ctx context.Context, c *call) {
	defer s.survive(ctx, c.Msg)
	s.cfg.Busy()
	data := c.Data
	if s.cfg.Opener != nil && bytes.HasPrefix(data, sealedPrefix) {
		data, _ = s.open(c) // the reason is told when there is room
		s.opened(c)         // what proves it is not looked at here, and few of these are made at once
	}
	var peek struct {
		Body struct {
			ID string `json:"id"`
		} `json:"body"`
	}
	if len(data) <= wire.MaxMessageBytes {
		_ = json.Unmarshal(data, &peek) // what is malformed is told so when there is room
	}
	after := s.backlog.Next
	if s.isApplied(c.Msg) {
		after = s.backlog.Soon
	}
	refusal := (&provisioner.Refusal{Code: wire.CodeBusy, After: after()}).Message()
	s.respond(ctx, c, &wire.Reply{ID: peek.Body.ID, Refusal: refusal})
}
