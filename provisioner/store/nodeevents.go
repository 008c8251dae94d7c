package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// MaxNodeEvents bounds how many events of one kind are read of one node, the
// newest: a machine that is refused asks every few minutes, for weeks.
const MaxNodeEvents = 200

// nodeEventTypes are the events that have a node for their subject and that its
// record does not tell. They are named, since looking for all types would look
// through the subjects of all nodes.
var nodeEventTypes = []events.Type{
	events.Enrolled, events.Renewed, events.Provisioned, events.Refused,
	events.Granted, events.Revoked, events.Retired, events.Cloned,
	events.Approved, events.Rejected, events.Forgotten, events.Commanded,
}

const lifecyclePrefix = "io.muster.server."

// lifecycleTypes are the last parts of the subjects of what nodes say themselves, but for
// aliveType, which they repeat.
var lifecycleTypes = []string{"startup", "provisioned", "shutdown"}

const aliveType = "alive"

// subjectsOfNodes are those of all nodes' own events of some types.
func subjectsOfNodes(types ...string) (subjects []string) {
	for _, t := range types {
		subjects = append(subjects, strings.TrimSuffix(wire.AllNodeEvents, "*")+t)
	}
	return subjects
}

// NodeEvents returns the events about id that are kept, the oldest first: of
// each type the newest [MaxNodeEvents], of "alive" the newest alone. complete is
// false if there were more. What nodes say themselves has the type
// io.muster.server.*, the time at which the broker got it, and of its content the
// serial of its certificate alone. Attempts under this name that proved nothing
// are among them: anybody may have made those.
func (s *EventLog) NodeEvents(ctx context.Context, id wire.Identity) (emitted []events.Event, complete bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	complete = true
	read := func(stream, subject string, limit int) error {
		some, all, err := s.tail(ctx, stream, subject, limit)
		for _, m := range some {
			if e, ok := decodeEvent(m); ok {
				emitted = append(emitted, e)
			}
		}
		complete = complete && all
		return err
	}
	token := id.SubjectToken()
	err = read(streamAttempts, subjectAttempt+"refused."+token, MaxNodeEvents)
	for _, t := range nodeEventTypes {
		err = errors.Join(err, read(streamEvents, subjectEvent+strings.TrimPrefix(string(t), "io.muster.")+"."+token, MaxNodeEvents))
	}
	for _, t := range lifecycleTypes {
		err = errors.Join(err, read(streamLifecycle, wire.EventSubject(id, t), MaxNodeEvents))
	}
	alive, lastErr := s.lastOf(ctx, streamAlive, wire.EventSubject(id, aliveType))
	if e, ok := decodeEvent(alive); ok {
		emitted = append(emitted, e)
	}
	if err = errors.Join(err, lastErr); err != nil {
		return nil, false, fmt.Errorf("events of %q: %w", id, err)
	}
	slices.SortStableFunc(emitted, func(a, b events.Event) int { return a.Time.Compare(b.Time) })
	return emitted, complete, nil
}

// lastOf returns the last message of a subject, the zero message if there is none.
func (c *client) lastOf(ctx context.Context, stream, subject string) (message, error) {
	handle := c.handles[stream]
	m, err := ask(ctx, c, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return handle.GetLastMsgForSubject(ctx, subject)
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return message{}, nil
	}
	if err != nil {
		return message{}, fmt.Errorf("last on %s: %w", subject, err)
	}
	return message{subject: m.Subject, data: m.Data, sequence: m.Sequence, at: m.Time}, nil
}

// tail returns the last messages of a subject, the oldest first, limit of them at
// most, and whether these are all that are kept.
func (c *client) tail(ctx context.Context, stream, subject string, limit int) (found []message, complete bool, err error) {
	// Of most types a node has none, which is cheap to find out.
	last, err := c.lastOf(ctx, stream, subject)
	if err != nil || last.sequence == 0 {
		return nil, err == nil, err
	}
	complete = true
	err = c.scan(ctx, stream, subject, jetstream.DeliverAllPolicy, func(m message) error {
		if found = append(found, m); len(found) > limit {
			found, complete = found[1:], false
		}
		return nil
	})
	return found, complete, err
}

// decodeEvent returns the event in a message, if it is one of ours or of a node.
func decodeEvent(m message) (e events.Event, ok bool) {
	var c cloudEvent
	if len(m.data) == 0 || json.Unmarshal(m.data, &c) != nil || c.Type == "" {
		return events.Event{}, false
	}
	if id, typ, ok := nodeEvent(m.subject); ok {
		// All but where and when it came is the node's word.
		return events.Event{Type: events.Type(lifecyclePrefix + typ), Time: m.at.UTC(), Node: string(id), Serial: c.Data.Serial}, true
	}
	e = c.Data
	e.Type, e.Time = events.Type(c.Type), c.Time
	return e, true
}

// nodeEvent returns which node speaks on a subject, and the type of what it says.
func nodeEvent(subject string) (id wire.Identity, typ string, ok bool) {
	rest, ok := strings.CutPrefix(subject, strings.TrimSuffix(wire.AllNodeEvents, "*.*"))
	if !ok {
		return "", "", false
	}
	token, typ, _ := strings.Cut(rest, ".")
	id, err := wire.ParseSubjectToken(token)
	return id, typ, err == nil
}
