package events

import (
	"context"
	"errors"
	"time"
)

// ErrUnknownWebhook means that no webhook of that name is configured.
var ErrUnknownWebhook = errors.New("no such webhook in provisioner.yaml")

// A Webhook is the state of one webhook. Counts are those of this process.
type Webhook struct {
	Name      string        `json:"name"`
	Endpoint  string        `json:"endpoint"` // scheme and host: the rest may be secret
	Events    []Type        `json:"events"`
	Delivered uint64        `json:"delivered"`
	Failed    uint64        `json:"failed"`   // attempts
	GivenUp   uint64        `json:"given_up"` // events
	Waiting   uint64        `json:"waiting"`  // events of all provisioners, some seconds old
	Lag       time.Duration `json:"lag_ns"`   // age of the event that was tried last

	LastDelivery time.Time `json:"last_delivery,omitzero"`
	FailingSince time.Time `json:"failing_since,omitzero"` // first failure since the last delivery
	Cause        string    `json:"cause,omitempty"`        // of the newest failure
}

// A WebhookAnswer is the result of one attempt.
type WebhookAnswer struct {
	ID      string        `json:"id"`               // webhook-id of the request
	Status  int           `json:"status,omitempty"` // 0 without an answer
	Body    string        `json:"body,omitempty"`   // beginning of the answer
	Cause   string        `json:"cause,omitempty"`  // why it was not delivered, or empty
	Elapsed time.Duration `json:"elapsed_ns"`
}

// Webhooks are the webhooks of one process.
type Webhooks interface {
	// List returns the webhooks in the order of the configuration.
	List() []Webhook

	// Test sends a test event, which is not stored. The error is [ErrUnknownWebhook] or that of ctx.
	Test(ctx context.Context, name, by string) (*WebhookAnswer, error)
}

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
