package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/internal/wire"
)

// A Stored is a CloudEvent 1.0 as it was stored.
type Stored struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            Type      `json:"type"`
	Subject         string    `json:"subject,omitempty"`     // in attempts only claimed
	Time            time.Time `json:"time"`                  // by the node's clock if a node sent it
	RecordedTime    time.Time `json:"recordedtime,omitzero"` // by the broker's clock; set when read
	DataContentType string    `json:"datacontenttype"`

	// Data is an [Event] or a [wire.Lifecycle].
	Data json.RawMessage `json:"data"`

	Cursor Cursor `json:"-"`
}

// Read decodes the event. It ignores unreadable data. An event that a node sent gets the broker's time.
func (s *Stored) Read() Event {
	var e Event
	_ = json.Unmarshal(s.Data, &e)
	e.Type, e.Time = s.Type, s.Time
	if strings.HasPrefix(string(s.Type), OfServer) {
		e.Time, e.Node = s.RecordedTime, s.Subject
	}
	return e
}

// A Cursor is the position just after an event: a sequence in each of the four streams.
type Cursor struct{ Events, Attempts, Lifecycle, Alive uint64 }

// String returns the form that [ParseCursor] reads.
func (p Cursor) String() string {
	return fmt.Sprintf("%d-%d-%d-%d", p.Events, p.Attempts, p.Lifecycle, p.Alive)
}

var errCursor = errors.New("want four numbers joined by dashes, like the id of a streamed event")

// ParseCursor parses a cursor.
func ParseCursor(s string) (Cursor, error) {
	var p Cursor
	_, err := fmt.Sscanf(s, "%d-%d-%d-%d", &p.Events, &p.Attempts, &p.Lifecycle, &p.Alive)
	if err != nil || p.String() != s {
		return Cursor{}, fmt.Errorf("cursor %.64q: %w", s, errCursor)
	}
	return p, nil
}

// A Query selects events. The zero value selects all future events.
type Query struct {
	// At most one of After and Since is set.
	After *Cursor
	Since time.Time

	Type string // prefix
	Node wire.Identity
	Code wire.Code

	// Once ends the query at the event that is newest when it starts.
	Once bool
}

// Wants reports whether the query selects the event.
func (q *Query) Wants(e *Stored) bool {
	if !strings.HasPrefix(string(e.Type), q.Type) || q.Node != "" && e.Subject != string(q.Node) {
		return false
	}
	if q.Code == "" {
		return true
	}
	var data struct {
		Code wire.Code `json:"code"`
	}
	return json.Unmarshal(e.Data, &data) == nil && data.Code == q.Code
}

// A Log returns stored events.
type Log interface {
	// Events calls each for every event that q selects, in order, one at a time. It ends at the first error of each, or
	// when ctx is done.
	Events(ctx context.Context, q Query, each func(*Stored) error) error
}
