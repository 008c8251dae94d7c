package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner/events"
)

const (
	// maxUnsettled bounds the events of a subscription that were tried and wait to
	// be tried again; those behind them wait in the stream. Chosen: as many as it
	// takes for one that its receiver will never like not to hold up the others,
	// and few enough that one that is away is not asked all the time.
	maxAckPending = 256

	// resubscribe is how long to wait before a stream is asked again that did not
	// give its events. Chosen.
	resubscribePause = time.Second
)

// Subscriptions deliver events, to webhooks.
type Subscriptions struct{ *client }

// Subscribe implements [events.Subscriptions], with a durable consumer on
// each stream that has events of the types.
func (s *Subscriptions) Subscribe(ctx context.Context, sub events.Subscription, each func(context.Context, *events.Delivery) events.Settlement) {
	var g sync.WaitGroup
	for stream, subjects := range subjectsOf(sub.Types) {
		c := consumerOf(sub, subjects)
		g.Go(func() {
			_ = s.poll(ctx, stream, resubscribePause, func() error { return s.serve(ctx, stream, c, sub.AtOnce, each) }) // never damaged
		})
	}
	g.Wait()
}

// Waiting implements [events.Subscriptions].
func (s *Subscriptions) Waiting(ctx context.Context, sub events.Subscription) (uint64, error) {
	var n uint64
	for stream := range subjectsOf(sub.Types) {
		c, err := s.js.Consumer(ctx, stream, sub.Name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue // nobody has asked yet
		}
		if err != nil {
			return 0, fmt.Errorf("consumer %s of %s: %w", sub.Name, stream, err)
		}
		info := c.CachedInfo()
		n += info.NumPending + uint64(info.NumAckPending)
	}
	return n, nil
}

// subjectsOf returns the subjects of the types by their streams.
func subjectsOf(types []events.Type) map[string][]string {
	all := map[string][]string{}
	for _, t := range types {
		kind, ofNode := strings.CutPrefix(string(t), events.OfServer)
		stream, subjects := streamEvents, []string{subjectEvent + strings.TrimPrefix(string(t), "io.muster.") + ".*"}
		switch {
		case t == events.Attempt:
			stream, subjects = streamAttempts, []string{subjectAttempt + "refused.*"}
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

// consumerOf is the consumer behind a subscription. Where it begins can never be changed.
func consumerOf(sub events.Subscription, subjects []string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: sub.Name, DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: sub.Hold, InactiveThreshold: sub.Forget, MaxDeliver: -1, MaxAckPending: maxAckPending, FilterSubjects: subjects,
	}
}

// serve delivers what a stream has for a subscription, until that fails or ctx is
// done. It returns once what is in hand is settled.
func (s *Subscriptions) serve(ctx context.Context, stream string, c jetstream.ConsumerConfig, atOnce int, each func(context.Context, *events.Delivery) events.Settlement) error {
	consumer, err := retryIfClustered(ctx, s.client, func(ctx context.Context) (jetstream.Consumer, error) {
		return s.js.CreateOrUpdateConsumer(ctx, stream, c)
	})
	if err != nil {
		return err
	}
	// One ahead and no more: what is here cannot be taken by others. A server that is gone
	// is missed as by who follows, not after the library's half a minute.
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return err
	}
	var g sync.WaitGroup
	defer g.Wait()
	defer messages.Stop()
	slots := make(chan struct{}, atOnce)
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

// deliver delivers one message, and tells the broker what has become of it. If
// that is lost, or we are killed before, it comes again.
func (s *Subscriptions) deliver(ctx context.Context, stream string, m jetstream.Msg, each func(context.Context, *events.Delivery) events.Settlement) {
	meta, err := m.Metadata()
	var e *events.Stored
	if err == nil {
		e = storedEvent(m.Subject(), m.Data(), meta.Timestamp)
	}
	if e == nil {
		_ = m.Term() // no event, and never will be; untold it only comes again
		return
	}
	*cursorIn(&e.Cursor, stream) = meta.Sequence.Stream
	done := each(ctx, &events.Delivery{Event: e, Tries: int(meta.NumDelivered), ID: s.deliveryID(stream, meta)})
	told, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	switch {
	case done.Settled:
		err = m.DoubleAck(told)
	case done.Again > 0:
		err = m.NakWithDelay(done.Again)
	default:
		err = m.Nak()
	}
	if err != nil {
		s.log.WarnContext(ctx, "event may be delivered again", "subject", stream, "err", err)
	}
}

// deliveryID is what tells a message from all others, whoever reads it. The id of
// the event will not do: a node chooses its own.
func (s *Subscriptions) deliveryID(stream string, meta *jetstream.MsgMetadata) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d", s.installation.ID, stream, meta.Sequence.Stream, meta.Timestamp.UnixNano()))
	return hex.EncodeToString(sum[:16])
}
