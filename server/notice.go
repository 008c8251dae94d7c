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
	msgAstray       = "configured brokers never reached, connected to a broker of the token instead"
	msgLost         = "connection to the fleet lost"
	msgUnconfirmed  = "confirmation not accepted"
	msgRenewal      = "certificate not renewed"
	msgReconfigure  = "node not reconfigured"
	msgRegistration = "registration data not published"
	msgFiles        = "agent could not start again with the files on disk"
	msgUnpinned     = "broker is not verified while provisioning"
)

// toldAgain is when an unchanged problem is logged again.
const toldAgain = time.Hour

// notices logs a problem that repeats each minute once an hour.
type notices struct {
	log  *slog.Logger
	told map[string]notice
}

type notice struct {
	gist string
	at   time.Time
}

// problem logs err with its remedy, unless the same was logged within the hour.
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

func (n *notices) solved(messages ...string) {
	for _, m := range messages {
		delete(n.told, m)
	}
}

// varying matches times and local ports, as in `read tcp 10.0.0.1:34567->10.0.0.2:4222`.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+|\S+->`)

func gist(text string) string { return varying.ReplaceAllString(text, "") }
