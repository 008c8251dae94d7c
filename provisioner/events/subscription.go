package events

import (
	"context"
	"time"
)

// A Subscription is a standing wish for events, which the log keeps under its
// name: whoever asks for it goes on where it stands, from any process and after
// any kill. Several may take from one at a time; each event goes to one of them.
// A new one begins with the events that come from then on; one that is removed from under
// those who take from it goes on where it stood, and some of what was settled comes again.
type Subscription struct {
	// Name is made of letters, digits and dashes. Required.
	Name string

	// Types are the events that are wanted, each by its whole name. Required. Asking
	// again with others changes them for all who take from it.
	Types []Type

	// AtOnce bounds the deliveries that one process has in hand of each of the
	// log's streams: what strangers cause does not keep all else waiting.
	// Required.
	AtOnce int

	// Hold is how long a delivery may take; then the event goes to whoever asks
	// next. Required.
	Hold time.Duration

	// Forget is after how long the log forgets a subscription from which nobody
	// takes any more. Required.
	Forget time.Duration
}

// A Delivery is one event for a subscriber. It comes again until it is settled,
// and may after that: a process that is killed settles nothing any more.
type Delivery struct {
	Event *Stored
	ID    string // the same each time it comes, and no other event's: 32 hex digits
	Tries int    // how often it has come, with this time
}

// A Settlement is what becomes of a delivery.
type Settlement struct {
	// Settled means that it need not come again.
	Settled bool

	// Again is when it is to come again, if it is not settled; 0 is at once.
	Again time.Duration
}

// Subscriptions are kept by a log of events.
type Subscriptions interface {
	// Subscribe calls each with the events of a subscription, up to AtOnce of each
	// stream at a time, until ctx is done, and returns once the last call has. What
	// keeps the log from giving them is logged, and tried again.
	Subscribe(ctx context.Context, sub Subscription, each func(context.Context, *Delivery) Settlement)

	// Waiting returns how many events of a subscription are not settled.
	Waiting(ctx context.Context, sub Subscription) (uint64, error)
}
