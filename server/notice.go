package server

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"muster/server/advice"
)

// Messages that are logged once per change.
const (
	msgFailed       = "enrollment failed"
	msgRefused      = "enrollment refused"
	msgWaiting      = "node waits"
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

// toldAgain is after how long what was logged is logged again, and maxNotices
// bounds how many texts of one message are remembered.
const (
	toldAgain  = time.Hour
	maxNotices = 16
)

// notices remembers what was logged, so that a failure that repeats every
// minute is a line an hour.
type notices struct {
	log  *slog.Logger
	told map[string]map[string]time.Time // by message and gist
}

// problem logs err with its remedy, unless the message was logged for the same
// within the hour. It reports whether it did.
func (n *notices) problem(ctx context.Context, level slog.Level, message string, err error, attrs ...any) bool {
	text := err.Error()
	attrs = append(attrs, "err", text)
	if !n.news(message, gist(text)) {
		n.log.DebugContext(ctx, message, attrs...) //nolint:sloglint // callers pass literals
		return false
	}
	if remedy := advice.Of(err); remedy != "" {
		attrs = append(attrs, "remedy", remedy)
	}
	n.log.Log(ctx, level, message, attrs...) //nolint:sloglint // callers pass literals
	return true
}

// news reports whether to log a message for what text says, and notes that.
func (n *notices) news(message, text string) bool {
	if at, ok := n.told[message][text]; ok && time.Since(at) < toldAgain {
		return false
	}
	if n.told == nil {
		n.told = make(map[string]map[string]time.Time)
	}
	if n.told[message] == nil || len(n.told[message]) == maxNotices {
		n.told[message] = make(map[string]time.Time)
	}
	n.told[message][text] = time.Now()
	return true
}

// solved forgets messages, so that their next occurrence is news again.
func (n *notices) solved(messages ...string) {
	for _, m := range messages {
		delete(n.told, m)
	}
}

// gist returns text without what differs each time: instants, and the local
// ports of connections, as in `read tcp 10.0.0.1:34567->10.0.0.2:4222`.
func gist(text string) string {
	var words []string
	for _, w := range strings.Fields(text) {
		if _, err := time.Parse(time.RFC3339, w); err == nil {
			continue
		}
		if _, remote, ok := strings.Cut(w, "->"); ok {
			w = remote
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}
