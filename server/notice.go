package server

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// notices remembers what was logged, so that a failure that repeats every
// minute for a week is one line, and two that take turns are two lines an hour. What has
// come back and stays is said again all the same, or the last line of the log would be about something else.
type notices struct {
	last     map[string]matter               // by message
	told     map[string]map[string]time.Time // by message and gist: when it was logged, by the process's clock
	insecure string                          // broker for which the missing pin was logged
}

// A matter is what was the matter last, by its gist.
type matter struct {
	gist   string
	since  time.Time // by the process's clock
	logged string    // what was logged last
}

// toldAgain is after how long what was logged is logged again if something else was the
// matter in between; stays after how long without a change, which is more than a wait between two
// attempts; mostNotices how many texts of one message are remembered. Chosen.
const (
	toldAgain   = time.Hour
	stays       = 3 * time.Minute
	mostNotices = 16
)

// problem logs err with its remedy, unless the message was last logged for
// the same, or was within the hour. It reports whether it did.
func (n *notices) problem(ctx context.Context, log *slog.Logger, level slog.Level, message string, err error, attrs ...any) bool {
	text := err.Error()
	if !n.news(message, gist(text)) {
		log.DebugContext(ctx, message, append(attrs, "err", text)...) //nolint:sloglint // callers pass literals
		return false
	}
	attrs = append(attrs, "err", text)
	if remedy := remedyOf(err); remedy != "" {
		attrs = append(attrs, "remedy", remedy)
	}
	log.Log(ctx, level, message, attrs...) //nolint:sloglint // callers pass literals
	return true
}

// news reports whether to log a message for what text says, and notes that.
func (n *notices) news(message, text string) bool {
	if n.last == nil {
		n.last, n.told = make(map[string]matter), make(map[string]map[string]time.Time)
	}
	m, known := n.last[message]
	if changed := !known || m.gist != text; changed {
		m.gist, m.since = text, time.Now()
		n.last[message] = m
	}
	if m.logged == text {
		return false
	}
	if at, ok := n.told[message][text]; ok && time.Since(at) < toldAgain && time.Since(m.since) < stays {
		return false
	}
	m.logged = text
	n.last[message] = m
	if n.told[message] == nil || len(n.told[message]) == mostNotices {
		n.told[message] = make(map[string]time.Time)
	}
	n.told[message][text] = time.Now()
	return true
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

// solved forgets a message, so that its next occurrence is news again. It
// reports whether there was one.
func (n *notices) solved(message string) bool {
	_, was := n.last[message]
	delete(n.last, message)
	delete(n.told, message)
	return was
}

// unpinned warns once per broker that nothing verifies it.
func (n *notices) unpinned(ctx context.Context, log *slog.Logger, broker string) {
	if n.insecure != broker {
		n.insecure = broker
		log.WarnContext(ctx, "broker is not verified while provisioning", "broker", broker,
			"remedy", "sign the token with --ca, so that nodes know which authority to expect")
	}
}
