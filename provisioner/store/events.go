package store

import (
	"strings"
	"sync/atomic"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
)

type cloudEvent struct {
	SpecVersion     string       `json:"specversion"`
	ID              string       `json:"id"`
	Source          string       `json:"source"`
	Type            string       `json:"type"`
	Subject         string       `json:"subject,omitempty"`
	Time            time.Time    `json:"time"`
	DataContentType string       `json:"datacontenttype"`
	Data            events.Event `json:"data"`
}

// An EventLog writes and reads events.
type EventLog struct {
	*client

	lost atomic.Uint64 // events that could not be published
}

// Emit publishes an event without waiting: events are reports, and a slow disk must not delay enrollment. An event that
// does not fit into the connection's buffer is lost and counted.
func (s *EventLog) Emit(e events.Event) {
	b, err := s.cloudEvent(e)
	if err == nil {
		err = s.nc.Publish(eventSubject(e), b)
	}
	if err == nil {
		return
	}
	// Log the first lost event, and then each time the number doubles.
	if n := s.lost.Add(1); n&(n-1) == 0 {
		s.log.Warn("events lost", "left_out", n-1, "subject", e.Type, "node", e.Node, "err", err)
	}
}

// Lost returns how many events were lost since the store was opened.
func (s *EventLog) Lost() uint64 { return s.lost.Load() }

func (s *EventLog) cloudEvent(e events.Event) ([]byte, error) {
	c := cloudEvent{
		SpecVersion:     "1.0",
		ID:              wire.NewID(),
		Source:          "io.muster.provisioner/" + s.installation.ID,
		Type:            string(e.Type),
		Subject:         e.Node,
		Time:            e.Time.UTC(),
		DataContentType: "application/json",
		Data:            e,
	}
	return wire.EncodeJSON(c)
}

// eventSubject returns a subject that ends in the node, or in _ for an invalid name.
func eventSubject(e events.Event) string {
	node := "_"
	if id, err := wire.ParseIdentity(e.Node); err == nil {
		node = id.SubjectToken()
	}
	switch e.Type {
	case events.Attempt:
		return subjectAttempt + "refused." + node
	case events.LoginRefused:
		return subjectAttempt + "operator._"
	}
	return subjectEvent + strings.TrimPrefix(string(e.Type), "io.muster.") + "." + node
}
