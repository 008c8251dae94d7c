package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"muster/internal/wire"
)

// A Stored is an event as it was stored: a CloudEvent 1.0 in its JSON form.
type Stored struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            Type      `json:"type"`
	Subject         string    `json:"subject,omitempty"`     // of an attempt a stranger's word
	Time            time.Time `json:"time"`                  // of a node's own events by its clock
	RecordedTime    time.Time `json:"recordedtime,omitzero"` // by the broker's, of what was read from its streams
	DataContentType string    `json:"datacontenttype"`

	// Data is an [Event], or what a node says of its life: the members of each
	// type are in [Types].
	Data json.RawMessage `json:"data"`

	// Cursor is where it stands in the log.
	Cursor Cursor `json:"-"`
}

// Read returns the event. What nodes say themselves has the time of the broker, since a node's clock may be far off.
// Data that cannot be read is left out.
func (s *Stored) Read() Event {
	var e Event
	_ = json.Unmarshal(s.Data, &e)
	e.Type, e.Time = s.Type, s.Time
	if strings.HasPrefix(string(s.Type), OfServer) {
		e.Time, e.Node = s.RecordedTime, s.Subject
	}
	return e
}

// A Cursor is a position in the log of events, just behind an event. The log is
// four streams: what provisioners say, what strangers cause, what nodes say of their
// life, and that they live. The zero value is its beginning.
type Cursor struct{ Events, Attempts, Lifecycle, Alive uint64 }

// String returns the form that [ParseCursor] reads.
func (p Cursor) String() string {
	return fmt.Sprintf("%d-%d-%d-%d", p.Events, p.Attempts, p.Lifecycle, p.Alive)
}

// errPlace says what a place looks like.
var errCursor = errors.New("want four numbers with dashes between, as in the id of an event of the stream")

// ParseCursor reads a place.
func ParseCursor(s string) (Cursor, error) {
	fields := strings.Split(s, "-")
	var p Cursor
	parts := []*uint64{&p.Events, &p.Attempts, &p.Lifecycle, &p.Alive}
	if len(fields) != len(parts) {
		return Cursor{}, fmt.Errorf("cursor %.64q: %w", s, errCursor)
	}
	for i, field := range fields {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return Cursor{}, fmt.Errorf("cursor %.64q: %w", s, errCursor)
		}
		*parts[i] = n
	}
	return p, nil
}

// An Query says which events are wanted. The zero value wants all that will
// be, from now on.
type Query struct {
	// After is a place to go on behind, Since a time to begin at; at most one of
	// them. What the log has lost of its beginning is left out. Without either the
	// events that come from now on are wanted.
	After *Cursor
	Since time.Time

	Type string        // prefix of the type; "" for any
	Node wire.Identity // "" for any
	Code wire.Code     // "" for any

	// Once ends with the newest event that there is when its turn comes, instead
	// of waiting for more.
	Once bool
}

// Wants reports whether the event is among those asked for.
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

// An Log is where events are read again.
type Log interface {
	// Events calls each for every event that q wants, in the order of the log, one
	// at a time: while each has not returned, no more than some hundred are read
	// ahead. It stops at the first error of each and returns it, and returns
	// ctx.Err() when ctx is done.
	Events(ctx context.Context, q Query, each func(*Stored) error) error
}
