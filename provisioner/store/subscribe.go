package store

import (
	"context"
	"errors"
	"fmt"
	"muster/internal/wire"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner/events"
)

const (
	// With maxAckPending, events that always fail do not block the rest, and an unreachable receiver is not called all
	// the time.
	maxAckPending = 256

	resubscribePause = time.Second
)

// Subscribe implements [events.Subscriptions], with a durable consumer on each stream.
func (s *Store) Subscribe(ctx context.Context, sub events.Subscription,
	each func(context.Context, *events.Delivery) events.Settlement,
) {
	var g sync.WaitGroup
	for stream, subjects := range subjectsOf(sub.Types) {
		c := consumerOf(sub, subjects)
		g.Go(func() {
			_ = s.poll(ctx, stream, resubscribePause, func() error {
				return s.serve(ctx, stream, c, sub.MaxInFlight, each)
			})
		})
	}
	g.Wait()
}

// Waiting implements [events.Subscriptions].
func (s *Store) Waiting(ctx context.Context, sub events.Subscription) (uint64, error) {
	var n uint64
	for stream := range subjectsOf(sub.Types) {
		c, err := s.js.Consumer(ctx, stream, sub.Name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("consumer %s of %s: %w", sub.Name, stream, err)
		}
		info := c.CachedInfo()
		n += info.NumPending + uint64(info.NumAckPending)
	}
	return n, nil
}

func subjectsOf(types []events.Type) map[string][]string {
	all := map[string][]string{}
	for _, t := range types {
		kind, ofNode := strings.CutPrefix(string(t), events.OfServer)
		stream, subjects := streamEvents, []string{subjectEvent + strings.TrimPrefix(string(t), "io.muster.") + ".*"}
		switch {
		case t == events.Attempt:
			stream, subjects = streamAttempts, []string{subjectAttempt + "refused.*"}
		case t == events.LoginRefused:
			stream, subjects = streamAttempts, []string{subjectAttempt + "operator._"}
		case ofNode:
			stream, subjects = streamLifecycle, subjectsOfNodes(kind)
			if kind == aliveType {
				stream = streamAlive
			}
		}
		all[stream] = append(all[stream], subjects...)
	}
	return all
}

// The start of a consumer can never be changed.
func consumerOf(sub events.Subscription, subjects []string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:           sub.Name,
		DeliverPolicy:     jetstream.DeliverNewPolicy,
		AckPolicy:         jetstream.AckExplicitPolicy,
		AckWait:           sub.DeliveryTimeout,
		InactiveThreshold: sub.ExpireAfter,
		MaxDeliver:        -1,
		MaxAckPending:     maxAckPending,
		FilterSubjects:    subjects,
	}
}

// serve delivers events until an error. It returns once all deliveries are settled.
func (s *Store) serve(ctx context.Context, stream string, c jetstream.ConsumerConfig, maxInFlight int,
	each func(context.Context, *events.Delivery) events.Settlement,
) error {
	consumer, err := retryIfClustered(ctx, s.client, func(ctx context.Context) (jetstream.Consumer, error) {
		return s.js.CreateOrUpdateConsumer(ctx, stream, c)
	})
	if err != nil {
		return err
	}
	// Fetch single messages, since no other process can get a fetched one.
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return err
	}
	var g sync.WaitGroup
	defer g.Wait()
	defer messages.Stop()
	slots := make(chan struct{}, maxInFlight)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		g.Go(func() {
			defer func() { <-slots }()
			s.deliver(ctx, stream, m, each)
		})
	}
}

// If the settlement is lost, the event is delivered again.
func (s *Store) deliver(ctx context.Context, stream string, m jetstream.Msg,
	each func(context.Context, *events.Delivery) events.Settlement,
) {
	meta, err := m.Metadata()
	var e *events.Stored
	if err == nil {
		e = storedEvent(m.Subject(), m.Data(), meta.Timestamp)
	}
	if e == nil {
		_ = m.Term() // not an event: never deliver it again
		return
	}
	*cursorIn(&e.Cursor, stream) = meta.Sequence.Stream
	done := each(ctx, &events.Delivery{Event: e, Tries: int(meta.NumDelivered), ID: s.deliveryID(stream, meta)})
	settleCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	switch {
	case done.Settled:
		err = m.DoubleAck(settleCtx)
	case done.RetryAfter > 0:
		err = m.NakWithDelay(done.RetryAfter)
	default:
		err = m.Nak()
	}
	if err != nil {
		s.log.WarnContext(ctx, "event may be delivered again", "subject", stream, "err", err)
	}
}

// deliveryID is unique. The event's own id is not: nodes choose theirs.
func (s *Store) deliveryID(stream string, meta *jetstream.MsgMetadata) string {
	return wire.Sum(fmt.Appendf(nil, "%s %s %d %d", s.installation.ID, stream, meta.Sequence.Stream,
		meta.Timestamp.UnixNano()))[:32]
}
