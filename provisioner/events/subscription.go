package events

import (
	"context"
	"time"
)

// A Subscription is a named position in the log, which several processes may share. A new one begins with future
// events.
type Subscription struct {
	// Name has letters, digits and dashes. Required.
	Name string

	// Types are whole types, not prefixes. Required.
	Types []Type

	// MaxInFlight bounds the concurrent deliveries per process and stream. Required.
	MaxInFlight int

	// DeliveryTimeout is when an unsettled delivery is repeated. Required.
	DeliveryTimeout time.Duration

	// ExpireAfter is how long an unused subscription is kept. Required.
	ExpireAfter time.Duration
}

// A Delivery is one attempt to deliver an event. Attempts are repeated until one is settled.
type Delivery struct {
	Event *Stored
	ID    string // 32 hex digits, the same in each delivery
	Tries int    // deliveries so far, this one included
}

// A Settlement is the outcome of a delivery.
type Settlement struct {
	// Settled means that the event is not delivered again.
	Settled bool

	// RetryAfter is the wait before the next delivery.
	RetryAfter time.Duration
}

// Subscriptions delivers the events of a log.
type Subscriptions interface {
	// Subscribe calls each with the events of a subscription until ctx is done, and returns after the last call. It
	// logs and retries errors of the log.
	Subscribe(ctx context.Context, sub Subscription, each func(context.Context, *Delivery) Settlement)

	// Waiting returns how many events of a subscription are not settled.
	Waiting(ctx context.Context, sub Subscription) (uint64, error)
}
