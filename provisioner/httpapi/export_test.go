package httpapi

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
