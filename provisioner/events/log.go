package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/paging"
	"muster/internal/span"
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
	By   string // prefix of what ordered it

	Of func(*Stored) bool // more conditions; nil: none

	// Once ends the query at the event that is newest when it starts.
	Once bool
}

// QueryParameters are the parameters of [ParseQuery].
var QueryParameters = []string{"after", "since", "type", "node", "code", "by", "once"}

// ParseQuery reads a query of the API or the console. The error lists every mistake.
func ParseQuery(v url.Values, now time.Time) (Query, error) {
	p := paging.Parameters{Values: v, Now: now}
	q := Query{
		Since: p.Time("since", span.ParsePast),
		Type:  v.Get("type"),
		Code:  wire.Code(v.Get("code")),
		By:    v.Get("by"),
		Once:  p.True("once"),
	}
	if after := v.Get("after"); after != "" {
		place, err := ParseCursor(after)
		p.Wrong("after", err)
		q.After = &place
	}
	if node := v.Get("node"); node != "" {
		var err error
		q.Node, err = wire.ParseName(node)
		p.Wrong("node", err)
	}
	if len(Beginning(q.Type)) == 0 {
		p.Wrong("type", fmt.Errorf("no event type begins with %.64q, want one such as io.muster.node.enrolled, or a "+
			"prefix", q.Type))
	}
	if q.Code != "" && !slices.Contains(Codes(), q.Code) {
		p.Wrong("code", fmt.Errorf("unknown code %.64q", q.Code))
	}
	return q, p.Err(nil)
}

// Wants reports whether the query selects the event.
func (q *Query) Wants(e *Stored) bool {
	if !strings.HasPrefix(string(e.Type), q.Type) || q.Node != "" && e.Subject != string(q.Node) {
		return false
	}
	if q.Of != nil && !q.Of(e) {
		return false
	}
	if q.Code == "" && q.By == "" {
		return true
	}
	var data struct {
		Code wire.Code `json:"code"`
		By   string    `json:"by"`
	}
	return json.Unmarshal(e.Data, &data) == nil && (q.Code == "" || data.Code == q.Code) &&
		strings.HasPrefix(data.By, q.By)
}

// A Log returns stored events.
type Log interface {
	// Events calls each for every event that q selects, in order, one at a time. It ends at the first error of each, or
	// when ctx is done.
	Events(ctx context.Context, q Query, each func(*Stored) error) error
}

// OfServer is the prefix of types of events that nodes send.
const OfServer = "io.muster.server."

// Events that nodes send. Only the node's identity is proven.
const (
	ServerStartup     Type = OfServer + "startup"
	ServerAlive       Type = OfServer + "alive"
	ServerProvisioned Type = OfServer + "provisioned"
	ServerShutdown    Type = OfServer + "shutdown"
)

var errLifecycle = errors.New("not a lifecycle event")

// CleanLifecycle copies the known members of an event that a node sent. It shortens long texts and sets the identity to
// id.
func CleanLifecycle(id wire.Identity, kind string, e *Stored) (*Stored, error) {
	t := Type(OfServer + kind)
	if MeaningOf(t) == nil || e.Time.IsZero() {
		return nil, errLifecycle
	}
	if y := e.Time.UTC().Year(); y < 0 || y > 9999 { // JSON allows the years 0 to 9999
		return nil, errLifecycle
	}
	var reported wire.Lifecycle
	if err := json.Unmarshal(e.Data, &reported); err != nil {
		return nil, errLifecycle
	}
	reported.Identity = id
	for _, s := range []*string{&reported.Version, &reported.Boot, &reported.Address, &reported.Mode, &reported.Serial,
		&reported.Expires} {
		*s = truncate(*s)
	}
	reported.Fault = FaultText(reported.Fault)
	if _, err := time.Parse(time.RFC3339, reported.Expires); err != nil {
		reported.Expires = ""
	}
	data, err := json.Marshal(reported)
	if err != nil {
		return nil, err
	}
	return &Stored{
		SpecVersion:     "1.0",
		ID:              truncate(e.ID),
		Source:          truncate(e.Source),
		Type:            t,
		Subject:         string(id),
		Time:            e.Time.UTC(),
		DataContentType: "application/json",
		Data:            data,
	}, nil
}

// FaultText bounds a node's report of what keeps it from renewing to 512 bytes.
func FaultText(s string) string { return Scrub(strings.ToValidUTF8(Cut(s, 512), "")) }

func truncate(s string) string {
	if len(s) > wire.MaxIdentityBytes {
		s = s[:wire.MaxIdentityBytes]
	}
	return Scrub(s)
}
