package server

import (
	"context"
	"log/slog"
	"regexp"
	"time"

	"muster/server/advice"
)

// Messages that are logged once per change.
const (
	msgFailed       = "enrollment failed"
	msgRefused      = "enrollment refused"
	msgDates        = "token is out of date by this machine's clock"
	msgFacts        = "facts not sent"
	msgUnreachable  = "fleet not reached"
	msgAstray       = "no broker of the configuration was ever reached, one of the token's takes the node"
	msgLost         = "connection to the fleet lost"
	msgUnconfirmed  = "confirmation not accepted"
	msgRenewal      = "certificate not renewed"
	msgReconfigure  = "node not reconfigured"
	msgRegistration = "registration data not published"
	msgFiles        = "files do not allow to go on after a restart"
	msgUnpinned     = "broker is not verified while provisioning"
)

// toldAgain is after how long what was logged is logged again.
const toldAgain = time.Hour

// notices remembers what was logged, so that a failure that repeats every
// minute is a line an hour.
type notices struct {
	log  *slog.Logger
	told map[string]notice // by message
}

// notice is what a message was logged for last.
type notice struct {
	gist string
	at   time.Time
}

// problem logs err with its remedy, unless the message was logged for the same
// within the hour.
func (n *notices) problem(ctx context.Context, level slog.Level, message string, err error, attrs ...any) {
	text := err.Error()
	attrs = append(attrs, "err", text)
	last, about := n.told[message], gist(text)
	if last.gist == about && time.Since(last.at) < toldAgain {
		n.log.DebugContext(ctx, message, attrs...) //nolint:sloglint // callers pass literals
		return
	}
	n.told[message] = notice{gist: about, at: time.Now()}
	if remedy := advice.Of(err); remedy != "" {
		attrs = append(attrs, "remedy", remedy)
	}
	n.log.Log(ctx, level, message, attrs...) //nolint:sloglint // callers pass literals
}

// solved forgets messages, so that their next occurrence is news again.
func (n *notices) solved(messages ...string) {
	for _, m := range messages {
		delete(n.told, m)
	}
}

// varying is what differs each time in one error: instants, and the local
// ports of connections, as in `read tcp 10.0.0.1:34567->10.0.0.2:4222`.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+|\S+->`)

func gist(text string) string { return varying.ReplaceAllString(text, "") }
