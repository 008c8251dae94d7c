package httpapi

// Hurry has the client wait a fifth as long for who says nothing.
func (c *Client) Hurry() *Client {
	c.quiet /= 5
	return c
}

// What is answered when an order fails.
var (
	ProblemOf = problemOf
	Write     = (*Problem).write
)

// For fuzzing: what is read of queries.
var (
	ParseNodeQuery  = parseNodeQuery
	ParseEventQuery = eventQuery
	WaitingFilterOf = waitingFilterOf
)
