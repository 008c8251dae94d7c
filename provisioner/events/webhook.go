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
