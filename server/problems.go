package server

import (
	"context"
	"log/slog"
	"regexp"
	"time"

	"muster/server/advice"
)

const (
	msgFailed       = "enrollment failed"
	msgRefused      = "enrollment refused"
	msgDates        = "token is not valid by this machine's clock"
	msgFacts        = "facts not sent"
	msgUnreachable  = "fleet not reached"
	msgTokenBroker  = "configured brokers never reached, connected to a broker of the token instead"
	msgLost         = "connection to the fleet lost"
	msgUnconfirmed  = "confirmation not accepted"
	msgRenewal      = "certificate not renewed"
	msgReconfigure  = "node not reconfigured"
	msgRegistration = "registration data not published"
	msgFiles        = "agent could not start again with the files on disk"
	msgUnsafe       = "files can be changed by other users"
	msgSettings     = "settings in server.conf are not used"
	msgDisk         = "no new certificate can be written"
	msgClock        = "clock is wrong, the node stays connected"
	msgUnpinned     = "broker is not verified while provisioning"
)

// repeatAfter is the interval at which an unchanged problem is logged.
const repeatAfter = time.Hour

// A problemLog logs a repeated problem once an hour.
type problemLog struct {
	log    *slog.Logger
	logged map[string]loggedProblem
}

type loggedProblem struct {
	summary string
	at      time.Time
}

// problem logs err with its remedy, unless it logged the same within the hour.
func (n *problemLog) problem(ctx context.Context, level slog.Level, message string, err error, attrs ...any) {
	text := err.Error()
	attrs = append(attrs, "err", text)
	last, about := n.logged[message], summarize(text)
	if last.summary == about && time.Since(last.at) < repeatAfter {
		n.log.DebugContext(ctx, message, attrs...) //nolint:sloglint // callers pass literals
		return
	}
	n.logged[message] = loggedProblem{summary: about, at: time.Now()}
	if remedy := advice.Of(err); remedy != "" {
		attrs = append(attrs, "remedy", remedy)
	}
	n.log.Log(ctx, level, message, attrs...) //nolint:sloglint // callers pass literals
}

func (n *problemLog) solved(messages ...string) {
	for _, m := range messages {
		delete(n.logged, m)
	}
}

// variablePart matches times and local ports, as in `read tcp 10.0.0.1:34567->10.0.0.2:4222`.
var variablePart = regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+|\S+->`)

func summarize(text string) string { return variablePart.ReplaceAllString(text, "") }
