package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// eventsAhead is how many events of each stream are read ahead of whoever takes
// them: at 500 bytes each, 64 KiB of memory for a slow reader, and no more.
const eventsAhead = 128

// found is an event of one of the streams, or that there is none for now.
type found struct {
	event   *events.Stored // nil if it was none, or is not wanted
	stored  time.Time
	place   uint64
	pending uint64 // behind it
}

// logStreams are the streams of which the log of events consists.
var logStreams = [...]string{streamEvents, streamAttempts, streamLifecycle, streamAlive}

// placeIn is the part of a place that is about one of them.
func placeIn(p *events.Place, stream string) *uint64 {
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

// Events implements [events.Log]. The streams are merged by the
// time at which the broker stored each event.
func (s *EventLog) Events(ctx context.Context, q events.Query, each func(*events.Stored) error) error {
	g, running := errgroup.WithContext(ctx)
	m := merger{each: each}
	for i, stream := range logStreams {
		in := make(chan found)
		m.sources[i] = source{stream: stream, in: in, behind: true}
		g.Go(func() error { return s.readEvents(running, stream, q, in) })
	}
	g.Go(func() error { return m.run(running) })
	err := g.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// readEvents sends what a stream has, and will have, to out, and at first where
// it stands. With q.Once it closes out at the end.
func (s *EventLog) readEvents(ctx context.Context, stream string, q events.Query, out chan<- found) error {
	fail := func(err error) error { return fmt.Errorf("read %s: %w", stream, err) }
	send := func(f found) error {
		select {
		case out <- f:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	info, err := ask(ctx, s.client, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		st, err := s.js.Stream(ctx, stream)
		if err != nil {
			return nil, err
		}
		return st.CachedInfo(), nil
	})
	if err != nil {
		return fail(err)
	}
	l, err := s.look(ctx, stream, eventConsumer(stream, q, info.State.LastSeq), jetstream.PullMaxMessages(eventsAhead), jetstream.PullThresholdMessages(eventsAhead/2))
	if err != nil {
		return fail(err)
	}
	defer l.close(ctx)
	begin := info.State.LastSeq
	if q.After != nil {
		if place := *placeIn(q.After, stream); place > 0 && place+1 < info.Config.FirstSeq {
			s.log.WarnContext(ctx, "events are read from the beginning of their log: the place to go on at is in one that was lost", "stream", stream, "revision", place)
		}
		begin = behind(stream, *q.After, info.State.LastSeq)
	} else if l.pending > 0 {
		begin = 0 // the first event says where it is
	}
	if err := send(found{place: begin, pending: l.pending}); err != nil {
		return err
	}
	for !q.Once || l.pending > 0 {
		m, meta, err := l.next(ctx)
		if err != nil {
			return fail(err)
		}
		f := found{} // what was to come has had to make room
		if m != nil {
			f = found{event: storedEvent(m.Subject(), m.Data(), meta.Timestamp), stored: meta.Timestamp, place: meta.Sequence.Stream, pending: meta.NumPending}
		}
		if f.event != nil && !q.Wants(f.event) {
			f.event = nil
		}
		if err := send(f); err != nil {
			return err
		}
	}
	close(out)
	return nil
}

// behind is where a place is in a stream that ends at last: of a log that was lost since,
// all is new. That one begins behind the place (see [Store.createOrUpdate]), unless it was made by a
// provisioner that did not yet see to it, or has only lost its end: once such a one is as
// long again, what came before the place is passed over.
func behind(stream string, p events.Place, last uint64) uint64 {
	if place := *placeIn(&p, stream); place <= last {
		return place
	}
	return 0
}

// eventConsumer says where in a stream q begins, and what of it the broker need
// not send.
func eventConsumer(stream string, q events.Query, last uint64) jetstream.OrderedConsumerConfig {
	c := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: last + 1}
	switch {
	case q.After != nil:
		c.OptStartSeq = behind(stream, *q.After, last) + 1
	case !q.Since.IsZero():
		c.DeliverPolicy, c.OptStartSeq, c.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &q.Since
	}
	if q.Node == "" {
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

// storedEvent decodes a message of the streams, or returns nil if it is no
// event. recorded is when the broker stored it. What a node publishes of itself is taken for no more than that: its
// type and its subject are those of the subject that the broker let it publish
// on, and what is not known of a lifecycle event is left out.
func storedEvent(subject string, data []byte, recorded time.Time) *events.Stored {
	var e events.Stored
	if json.Unmarshal(data, &e) != nil {
		return nil
	}
	if strings.HasPrefix(subject, subjectEvent) || strings.HasPrefix(subject, subjectAttempt) {
		e.RecordedTime = recorded.UTC()
		return &e
	}
	parts := strings.Split(subject, ".")
	if len(parts) < 2 {
		return nil
	}
	id, err := wire.ParseSubjectToken(parts[len(parts)-2])
	if err != nil {
		return nil
	}
	clean, err := events.CleanLifecycle(id, parts[len(parts)-1], &e)
	if err != nil {
		return nil
	}
	clean.RecordedTime = recorded.UTC()
	return clean
}

// source is one stream of a merge.
type source struct {
	stream string
	in     <-chan found
	head   *found
	behind bool // more is there and on its way
	ended  bool
}

// merger hands on what the streams have.
type merger struct {
	each    func(*events.Stored) error
	sources [len(logStreams)]source
	place   events.Place
}

// errEnded ends what reads a stream, or merges all, and has all that it wants.
var errEnded = errors.New("ended")

// run merges until all streams have ended, or ctx is done.
func (m *merger) run(ctx context.Context) error {
	for {
		if err := m.fill(ctx); err != nil {
			if errors.Is(err, errEnded) {
				return nil
			}
			return err
		}
		if err := m.emit(); err != nil {
			return err
		}
	}
}

// fill waits until it is known which event is next: each stream has shown one, or
// has none for now.
func (m *merger) fill(ctx context.Context) error {
	for {
		heads, waits, ended := 0, 0, 0
		for i := range m.sources {
			switch s := &m.sources[i]; {
			case s.head != nil:
				heads++
			case s.ended:
				ended++
			case s.behind:
				waits++
			}
		}
		if ended == len(m.sources) {
			return errEnded
		}
		if heads > 0 && waits == 0 {
			return nil
		}
		a, b, c, d := &m.sources[0], &m.sources[1], &m.sources[2], &m.sources[3]
		select {
		case f, ok := <-a.open():
			a.take(f, ok)
		case f, ok := <-b.open():
			b.take(f, ok)
		case f, ok := <-c.open():
			c.take(f, ok)
		case f, ok := <-d.open():
			d.take(f, ok)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// open returns where the stream's next message comes from; nil, which never has
// one, while there is one already or if there is no more.
func (s *source) open() <-chan found {
	if s.head != nil || s.ended {
		return nil
	}
	return s.in
}

// take takes in what came.
func (s *source) take(f found, ok bool) {
	if !ok {
		s.ended, s.behind = true, false
		return
	}
	s.head, s.behind = &f, f.pending > 0
}

// emit hands on the oldest head.
func (m *merger) emit() error {
	var oldest *source
	for i := range m.sources {
		if s := &m.sources[i]; s.head != nil && (oldest == nil || s.head.stored.Before(oldest.head.stored)) {
			oldest = s
		}
	}
	f := oldest.head
	oldest.head = nil
	place := placeIn(&m.place, oldest.stream)
	*place = max(*place, f.place)
	for _, other := range m.sources {
		if other.head != nil && other.head.place > 0 {
			// Nothing before it is wanted: whoever goes on from here need not look.
			place := placeIn(&m.place, other.stream)
			*place = max(*place, other.head.place-1)
		}
	}
	if f.event == nil {
		return nil
	}
	f.event.Place = m.place
	return m.each(f.event)
}
