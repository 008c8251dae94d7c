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

// eventQueue bounds the waiting lifecycle events. More are dropped: the node's next event says the same.
const eventQueue = 1024

// events is the queue of lifecycle events, shared fairly among nodes.
type events struct {
	queue chan *nats.Msg
	share *limit.Shares[string] // by the subject's node
}

func newEvents() *events {
	return &events{make(chan *nats.Msg, eventQueue), limit.NewShares[string](eventQueue)}
}

// put queues or drops an event, and does not block.
func (e *events) put(m *nats.Msg) {
	if len(m.Data) > wire.MaxEventBytes {
		return // the store does not keep it either
	}
	if e.share.Acquire(subjectNode(m.Subject), 1) {
		e.queue <- m // the share guarantees room
	}
}

// release must be called before the event is handled.
func (e *events) release(m *nats.Msg) { e.share.Release(subjectNode(m.Subject), 1) }

// subjectNode returns the node's part of the subject, or "". The broker guarantees that it names the sender.
func subjectNode(subject string) string {
	parts := strings.Split(subject, ".")
	if len(parts) < 2 {
		return ""
	}
	return parts[len(parts)-2]
}

// nodeEvent is the used part of a lifecycle event. It is unproven.
type nodeEvent struct {
	Data struct {
		provisioner.Machine

		Serial string `json:"serial"`
		Fault  string `json:"fault"`
	} `json:"data"`
}

func (s *Service) handleEvent(ctx context.Context, m *nats.Msg) {
	defer s.survive(ctx, m)
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
	s.cfg.Provisioner.NoteFault(ctx, id, e.Data.Serial, e.Data.Fault)
}
