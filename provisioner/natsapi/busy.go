package natsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"runtime"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner"
)

// Requests for which there is no room wait to be told so. Telling takes work,
// too: the id is decoded, since a node ignores replies without it, and a sealed
// request is opened, since the node would not believe a plain reply. So it is
// done by a few goroutines of its own and never by the subscription's, and at
// most by half of the cores, so that refusing does not keep from serving.
//
// When they have no room either, the subscription waits for whichever comes
// first, and what arrives meanwhile piles up in the connection's buffer: up to
// maxUntaken messages or maxUntakenBytes of each kind, beyond which nats.go drops the
// newest. A node that is not even told `busy` waits out its time for an answer and comes
// back with its own backoff.

// maxExcess is how many requests wait to be told `busy`: those of a tenth of a
// second at the slowest rate of telling measured, 10,000 a second.
const maxExcess = 1024

// What nats.go keeps of each subscription. Its own bounds are 64 MiB as well, and 500,000
// messages, of which each takes a kilobyte however short it is, for what the broker says of
// its sender: one connection had 600 MB kept within seconds. Chosen: 6 s at the rate of telling.
const (
	maxUntaken      = 1 << 16
	maxUntakenBytes = 64 << 20
)

// busyWorkers is how many goroutines say `busy`.
func busyWorkers() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// busy answers a request that there is no room for. One that does not open is
// answered in plain: that slows the node as long as it may, no more.
func (s *Service) busy(ctx context.Context, m *nats.Msg) {
	defer s.survive(ctx, m)
	s.cfg.Busy()
	c := newCall(m)
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
	after := s.spread.next
	if s.isApplied(c.Msg) {
		after = s.spread.soon
	}
	refusal := (&provisioner.Refusal{Code: wire.CodeBusy, After: after()}).Message()
	s.respond(ctx, c, &wire.Reply{ID: peek.Body.ID, Refusal: refusal})
}
