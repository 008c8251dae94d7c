package store

import (
	"encoding/json"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

// cloudEvent is the JSON form of CloudEvents 1.0.
type cloudEvent struct {
	SpecVersion     string            `json:"specversion"`
	ID              string            `json:"id"`
	Source          string            `json:"source"`
	Type            string            `json:"type"`
	Subject         string            `json:"subject,omitempty"`
	Time            time.Time         `json:"time"`
	DataContentType string            `json:"datacontenttype"`
	Data            provisioner.Event `json:"data"`
}

// Emit publishes an event without waiting for it: an event is a report and not
// the truth, which is in the records, and a slow disk must not hold up
// enrollment for it.
func (s *Store) Emit(e provisioner.Event) {
	b, err := s.cloudEvent(e)
	if err == nil {
		err = s.nc.Publish(eventSubject(e), b)
	}
	if err != nil {
		s.log.Warn("event lost", "subject", e.Type, "node", e.Node, "err", err)
	}
}

// cloudEvent encodes an event.
func (s *Store) cloudEvent(e provisioner.Event) ([]byte, error) {
	return json.Marshal(cloudEvent{
		SpecVersion: "1.0", ID: wire.NewID(), Source: "io.muster.provisioner/" + s.installation.ID, Type: string(e.Type),
		Subject: e.Node, Time: e.Time.UTC(), DataContentType: "application/json", Data: e,
	})
}

// eventSubject is where an event goes: by type, then by node. What a stranger
// claims to be is no subject unless it is an identity.
func eventSubject(e provisioner.Event) string {
	node := "_"
	if id, err := wire.ParseIdentity(e.Node); err == nil {
		node = id.SubjectToken()
	}
	if e.Type == provisioner.EventAttempt {
		return subjectAttempt + "refused." + node
	}
	return subjectEvent + strings.TrimPrefix(string(e.Type), "io.muster.") + "." + node
}
