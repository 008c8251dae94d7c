package natsapi

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/nats-io/nats.go"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/provisioner"
)

// eventQueue is how many lifecycle events may wait while one of them has a
// record read. What finds no room is dropped: a node says the same again with
// its next event.
const eventQueue = 1024

// events are the lifecycle events that wait to be heard, shared by the nodes that they are of. Make them with
// [newEvents].
type events struct {
	queue chan *nats.Msg
	share *limit.Shares[string] // by the subject's node
}

func newEvents() *events {
	return &events{make(chan *nats.Msg, eventQueue), limit.NewShares[string](eventQueue)}
}

// put queues an event, or drops it if there is no room for it or for more of its
// node. It does not block.
func (e *events) put(m *nats.Msg) {
	if e.share.Acquire(subjectNode(m.Subject), 1) {
		e.queue <- m // there is a place for each
	}
}

// took says that an event was taken off the queue. The goroutine that does it
// calls it before anything else.
func (e *events) took(m *nats.Msg) { e.share.Release(subjectNode(m.Subject), 1) }

// subjectNode returns the token of an event's subject that names the node, which
// is the broker's word; empty if there is none.
func subjectNode(subject string) string {
	parts := strings.Split(subject, ".")
	if len(parts) < 2 {
		return ""
	}
	return parts[len(parts)-2]
}

// nodeEvent is the part of a node's lifecycle event that we use. All of it is
// the node's word, but for the subject that it comes on.
type nodeEvent struct {
	Data struct {
		provisioner.Machine

		Serial string `json:"serial"`
	} `json:"data"`
}

// hear hands one lifecycle event to the provisioner. It is never answered, and
// what is no event is nobody's business.
func (s *Service) hear(ctx context.Context, m *nats.Msg) {
	defer s.survive(ctx, m)
	if len(m.Data) > wire.MaxMessageBytes {
		return
	}
	id, err := wire.ParseSubjectToken(subjectNode(m.Subject))
	if err != nil {
		return
	}
	var e nodeEvent
	if json.Unmarshal(m.Data, &e) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if _, err := netip.ParseAddr(e.Data.Address); err != nil {
		e.Data.Address = ""
	}
	s.cfg.Provisioner.NoteMachine(ctx, id, e.Data.Machine, e.Data.Serial)
}
