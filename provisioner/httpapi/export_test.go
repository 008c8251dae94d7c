package httpapi

import (
	"maps"
	"slices"
	"sync"

	"muster/provisioner"
)

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

// routes are those of every server.
var routes = sync.OnceValue(func() map[string]access {
	s, err := New(Config{Socket: "none", Provisioner: &provisioner.Provisioner{}})
	if err != nil {
		panic(err)
	}
	return s.routes
})

// Routes returns the patterns of all routes, sorted.
func Routes() []string { return slices.Sorted(maps.Keys(routes())) }

// RoleOf returns the role that a route needs, "" if it needs none.
func RoleOf(pattern string) provisioner.OperatorRole { return routes()[pattern].role }

// Changes reports whether a route changes something, so that a request over HTTPS has to say why.
func Changes(pattern string) bool { return routes()[pattern].changes }
