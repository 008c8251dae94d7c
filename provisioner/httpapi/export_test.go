package httpapi

import "net/http"

// Hurry has the client wait a fifth as long for who says nothing.
func (c *Client) Hurry() *Client {
	c.quiet /= 5
	return c
}

// Answer sends what is answered when an order fails with err.
func Answer(w http.ResponseWriter, err error) { problemOf(err).write(w) }

// For fuzzing: what is read of queries.
var (
	ParseNodeQuery  = parseNodeQuery
	ParseEventQuery = eventQuery
	WaitingFilterOf = waitingFilterOf
)
