package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// eventsAhead events are read ahead per stream, about 64 KiB.
const eventsAhead = 128

// MaxNodeEvents bounds the events per type that [Store.NodeEvents] returns.
const MaxNodeEvents = 200

// A mergeItem without event only moves the position of its source.
type mergeItem struct {
	source      *source
	event       *events.Stored // nil if not wanted
	stored      time.Time
	sequence    uint64
	pending     uint64
	endOfStream bool
}

var eventStreams = [...]string{streamEvents, streamAttempts, streamLifecycle, streamAlive}

func cursorIn(p *events.Cursor, stream string) *uint64 {
	switch stream {
	case streamAttempts:
		return &p.Attempts
	case streamLifecycle:
		return &p.Lifecycle
	case streamAlive:
		return &p.Alive
	}
	return &p.Events
}

// NodeEvents returns the newest [MaxNodeEvents] events of each type about id, oldest first. complete is false if there
// were more. They include unproven attempts. Events that the node sent have the broker's time.
func (s *Store) NodeEvents(ctx context.Context, id wire.Identity) (all []events.Event, complete bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	complete = true
	newest := make(map[events.Type][]events.Event)
	query := events.Query{Node: id, Since: time.Unix(0, 0), Once: true}
	err = s.Events(ctx, query, func(stored *events.Stored) error {
		e := stored.Read()
		e.Node = string(id)
		same := append(newest[e.Type], e)
		if len(same) > MaxNodeEvents {
			same, complete = same[1:], false
		}
		newest[e.Type] = same
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("events of %q: %w", id, err)
	}
	for _, t := range slices.Sorted(maps.Keys(newest)) {
		all = append(all, newest[t]...)
	}
	slices.SortStableFunc(all, func(a, b events.Event) int { return a.Time.Compare(b.Time) })
	return all, complete, nil
}

// Events implements [events.Log]. It merges the streams by the broker's time.
func (s *Store) Events(ctx context.Context, q events.Query, each func(*events.Stored) error) error {
	g, running := errgroup.WithContext(ctx)
	m := merger{each: each, in: make(chan mergeItem)}
	for _, stream := range eventStreams {
		from := &source{stream: stream, hasMore: true, consumed: make(chan struct{}, 1)}
		m.sources = append(m.sources, from)
		g.Go(func() error {
			if err := s.readEvents(running, from, q, m.in); err != nil {
				return fmt.Errorf("read %s: %w", stream, err)
			}
			return nil
		})
	}
	g.Go(func() error { return m.run(running) })
	err := g.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// The first item has the sequence at which reading begins.
func (s *Store) readEvents(ctx context.Context, from *source, q events.Query, out chan<- mergeItem) error {
	send := func(f mergeItem) error {
		f.source = from
		select {
		case out <- f:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-from.consumed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	end, err := s.leaderEnd(ctx, from.stream, "")
	if err != nil {
		return err
	}
	l, err := s.openReader(ctx, from.stream, eventConsumer(from.stream, q, end),
		jetstream.PullMaxMessages(eventsAhead), jetstream.PullThresholdMessages(eventsAhead/2))
	if err != nil {
		return err
	}
	defer l.close(ctx)
	begin := end
	if q.After != nil {
		begin = resumeSequence(from.stream, q.After, end)
	} else if l.pending > 0 {
		begin = 0 // the first event sets the sequence
	}
	if err := send(mergeItem{sequence: begin, pending: l.pending}); err != nil {
		return err
	}
	for !q.Once || l.pending > 0 {
		m, meta, err := l.next(ctx)
		if err != nil {
			return err
		}
		f := mergeItem{} // deleted to make room
		if m != nil {
			f = mergeItem{
				event:    storedEvent(m.Subject(), m.Data(), meta.Timestamp),
				stored:   meta.Timestamp,
				sequence: meta.Sequence.Stream,
				pending:  meta.NumPending,
			}
		}
		if f.event != nil && !q.Wants(f.event) {
			f.event = nil
		}
		if err := send(f); err != nil {
			return err
		}
	}
	return send(mergeItem{endOfStream: true})
}

// resumeSequence returns the cursor's sequence, or 0 if the stream is shorter, since it was then lost and created
// again.
func resumeSequence(stream string, p *events.Cursor, last uint64) uint64 {
	if place := *cursorIn(p, stream); place <= last {
		return place
	}
	return 0
}

func eventConsumer(stream string, q events.Query, last uint64) jetstream.OrderedConsumerConfig {
	c := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: last + 1}
	switch {
	case q.After != nil:
		c.OptStartSeq = resumeSequence(stream, q.After, last) + 1
	case !q.Since.IsZero():
		c.DeliverPolicy, c.OptStartSeq, c.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &q.Since
	}
	if q.Node == "" {
		if types := events.Beginning(q.Type); len(types) == 1 { // it has a subject of its own, in one stream
			if c.FilterSubjects = subjectsOf(types)[stream]; c.FilterSubjects == nil && q.After == nil {
				c.DeliverPolicy, c.OptStartSeq, c.OptStartTime = jetstream.DeliverByStartSequencePolicy, last+1, nil
			}
		}
		return c
	}
	node := q.Node.SubjectToken()
	switch stream {
	case streamAttempts:
		c.FilterSubjects = []string{subjectAttempt + "*." + node}
	case streamLifecycle, streamAlive:
		c.FilterSubjects = []string{strings.Replace(wire.AllNodeEvents, "*", node, 1)}
	default:
		c.FilterSubjects = []string{subjectEvent + "*.*." + node}
	}
	return c
}

// storedEvent returns nil if the message is no event. An event that a node sent gets type and node from its subject,
// which the broker enforces.
func storedEvent(subject string, data []byte, recorded time.Time) *events.Stored {
	e := &events.Stored{}
	if json.Unmarshal(data, e) != nil {
		return nil
	}
	if !strings.HasPrefix(subject, subjectEvent) && !strings.HasPrefix(subject, subjectAttempt) {
		id, kind, ok := nodeEvent(subject)
		if !ok {
			return nil
		}
		var err error
		if e, err = events.CleanLifecycle(id, kind, e); err != nil {
			return nil
		}
	}
	e.RecordedTime = recorded.UTC()
	return e
}

func nodeEvent(subject string) (id wire.Identity, typ string, ok bool) {
	rest, ok := strings.CutPrefix(subject, strings.TrimSuffix(wire.AllNodeEvents, "*.*"))
	if !ok {
		return "", "", false
	}
	token, typ, _ := strings.Cut(rest, ".")
	id, err := wire.ParseSubjectToken(token)
	return id, typ, err == nil
}

type source struct {
	stream      string
	head        *mergeItem
	hasMore     bool
	endOfStream bool
	consumed    chan struct{} // capacity 1: the head was taken
}

type merger struct {
	each    func(*events.Stored) error
	in      chan mergeItem
	sources []*source
	cursor  events.Cursor
}

var errEndOfStream = errors.New("ended")

func (m *merger) run(ctx context.Context) error {
	for {
		oldest, err := m.next(ctx)
		if err != nil || oldest == nil {
			return err
		}
		if err := m.emit(oldest); err != nil {
			return err
		}
	}
}

// next returns the source with the oldest head, once each source has a head or no more messages. It returns nil at the
// end of all sources.
func (m *merger) next(ctx context.Context) (*source, error) {
	for {
		var oldest *source
		waits, ended := false, true
		for _, s := range m.sources {
			if s.head != nil && (oldest == nil || s.head.stored.Before(oldest.head.stored)) {
				oldest = s
			}
			waits = waits || s.head == nil && s.hasMore
			ended = ended && s.endOfStream
		}
		switch {
		case ended:
			return nil, nil
		case oldest != nil && !waits:
			return oldest, nil
		}
		select {
		case f := <-m.in:
			s := f.source
			s.hasMore, s.endOfStream = f.pending > 0, f.endOfStream
			if f.endOfStream {
				s.consumed <- struct{}{}
			} else {
				s.head = &f
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (m *merger) emit(s *source) error {
	f := s.head
	s.head = nil
	s.consumed <- struct{}{}
	place := cursorIn(&m.cursor, s.stream)
	*place = max(*place, f.sequence)
	for _, other := range m.sources {
		if other.head != nil && other.head.sequence > 0 {
			// The query selects no event before this one.
			place := cursorIn(&m.cursor, other.stream)
			*place = max(*place, other.head.sequence-1)
		}
	}
	if f.event == nil {
		return nil
	}
	f.event.Cursor = m.cursor
	return m.each(f.event)
}

// Emit publishes an event without waiting: events are reports, and a slow disk must not delay enrollment. An event that
// does not fit into the connection's buffer is lost and counted.
func (s *Store) Emit(e events.Event) {
	b, err := wire.EncodeJSON(wire.NewCloudEvent("io.muster.provisioner/"+s.installation.ID, string(e.Type), e.Node,
		e.Time, e))
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
func (s *Store) Lost() uint64 { return s.lost.Load() }

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
