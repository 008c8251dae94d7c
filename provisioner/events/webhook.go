package events

import (
	"context"
	"errors"
	"time"
)

// ErrUnknownWebhook means that no webhook of that name is configured.
var ErrUnknownWebhook = errors.New("no such webhook in provisioner.yaml")

// A Webhook is what a process knows of a webhook: counts are its own, since it
// started.
type Webhook struct {
	Name      string        `json:"name"`
	Endpoint  string        `json:"endpoint"` // scheme and host: the rest may be secret
	Events    []Type        `json:"events"`
	Delivered uint64        `json:"delivered"`
	Failed    uint64        `json:"failed"`   // attempts at delivery
	GivenUp   uint64        `json:"given_up"` // events that are not tried any more
	Waiting   uint64        `json:"waiting"`  // events, for all provisioners; looked up every few seconds
	Lag       time.Duration `json:"lag_ns"`   // age of the event that was tried last, 0 when none waits

	LastDelivery time.Time `json:"last_delivery,omitzero"`
	FailingSince time.Time `json:"failing_since,omitzero"` // the first failure since the last delivery
	Cause        string    `json:"cause,omitempty"`        // of the newest failure
}

// A WebhookAnswer is what came of one attempt.
type WebhookAnswer struct {
	ID      string        `json:"id"`               // webhook-id of the request
	Status  int           `json:"status,omitempty"` // HTTP status; 0 if there was no answer
	Body    string        `json:"body,omitempty"`   // the beginning of the answer
	Cause   string        `json:"cause,omitempty"`  // why it is no delivery; empty if it is one
	Elapsed time.Duration `json:"elapsed_ns"`
}

// Webhooks are those of one process.
type Webhooks interface {
	// List returns them in the order of the configuration.
	List() []Webhook

	// Test sends one an event that says so, in the name of by, and returns what
	// came back. It is sent once, and is in no log of events. The error is
	// [ErrUnknownWebhook] or that of ctx.
	Test(ctx context.Context, name, by string) (*WebhookAnswer, error)
}
