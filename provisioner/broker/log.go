package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"muster/internal/limit"
)

// Lines a second, and in one go, about connections. Strangers cause these, and
// more of them would tell nobody more; chosen.
const (
	linesPerSecond = 20
	linesAtOnce    = 100
)

// natsLog is the logger of the NATS server. Of what the server writes about
// clients, it passes on what kind of mishap it was, whose, and the cause if
// that cannot hold what the client sent: the server's own lines quote the
// beginning of a CONNECT, token and all.
type natsLog struct {
	log   *slog.Logger
	lines *limit.Keyed[struct{}] // about clients, of which there is one kind

	// failure takes the first error that keeps the server from starting.
	failure chan error
	up      atomic.Bool // the start is over
}

func newNATSLog(log *slog.Logger) *natsLog {
	return &natsLog{
		log:     log,
		lines:   limit.NewKeyed[struct{}](limit.Rate{PerSecond: linesPerSecond, Burst: linesAtOnce}),
		failure: make(chan error, 1),
	}
}

// startFailure returns why the server could not start, or nil. It is called
// once for each start, when it is over.
func (l *natsLog) startFailure() error {
	l.up.Store(true)
	return l.failed()
}

// failed returns why the server cannot start, or nil, during the start. It says so once.
func (l *natsLog) failed() error {
	select {
	case err := <-l.failure:
		return err
	default:
		return nil
	}
}

// refused says why the gate refused a connection.
func (l *natsLog) refused(ctx context.Context, p Presented, d *Denied) {
	attrs := []slog.Attr{slog.String("address", p.Address), slog.String("code", string(d.Code)), slog.String("err", scrub(d.Err.Error()))}
	if n := (*NotAdmitted)(nil); errors.As(d.Err, &n) {
		attrs = append([]slog.Attr{slog.String("node", string(n.Node))}, attrs...)
	}
	l.connection(ctx, "connection not admitted", attrs...)
}

// connection writes a line that a client caused.
func (l *natsLog) connection(ctx context.Context, msg string, attrs ...slog.Attr) {
	leftOut, ok := l.lines.Take(struct{}{})
	if !ok {
		return
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int64("lines_left_out", leftOut))
	}
	l.log.LogAttrs(ctx, slog.LevelWarn, msg, attrs...) //nolint:sloglint // callers pass literals
}

// logErrors logs the errors that nats.go meets on a connection and can return to no caller; by default it prints them.
// Messages with malformed headers are left out: clients cause them as often as they like.
func logErrors(log *slog.Logger) nats.Option {
	return nats.ErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) {
		if !errors.Is(err, nats.ErrBadHeaderMsg) {
			log.Warn("connection to the broker", "name", nc.Opts.Name, "err", err)
		}
	})
}

// Noticef implements [server.Logger]. Notices are progress at start and stop,
// but for clients that do not keep up.
func (l *natsLog) Noticef(format string, v ...any) {
	if !strings.Contains(format, slowConsumer) {
		return
	}
	text, address, client := render(format, v)
	if client && !strings.HasPrefix(text, slowConsumer+" Recovered") {
		l.client(text, address)
	}
}

// Debugf implements [server.Logger].
func (l *natsLog) Debugf(string, ...any) {}

// Tracef implements [server.Logger].
func (l *natsLog) Tracef(string, ...any) {}

// Warnf implements [server.Logger].
func (l *natsLog) Warnf(format string, v ...any) {
	text, address, client := render(format, v)
	if client {
		l.client(text, address)
		return
	}
	l.log.WarnContext(context.Background(), "nats server warned", "err", scrub(text))
}

// Errorf implements [server.Logger].
func (l *natsLog) Errorf(format string, v ...any) {
	text, address, client := render(format, v)
	if client {
		l.client(text, address)
		return
	}
	l.log.ErrorContext(context.Background(), "nats server failed", "err", scrub(text))
}

// Fatalf implements [server.Logger]. The server expects the process to end, and
// returns if it does not.
func (l *natsLog) Fatalf(format string, v ...any) {
	text, _, _ := render(format, v)
	err := errors.New(scrub(text))
	if !l.up.Load() {
		select {
		case l.failure <- err:
			return
		default: // the first one is the cause
		}
	}
	l.log.ErrorContext(context.Background(), "nats server cannot go on", "err", err)
}

// clientLine is how the server begins a line about a connection, by WebSocket or not: address,
// number, and what the client says of itself, quoted.
var clientLine = regexp.MustCompile(`^(\S+) - [cw]id:(\d+)(?: - "(?:[^"\\]|\\.)*")* - `)

// strangerLine is what the server says of who asks for a WebSocket and has none yet: perhaps the address, and
// what is wrong with it, in words of the stranger's own in part.
var strangerLine = regexp.MustCompile(`(?s)^(?:(\S+) - )?(websocket handshake error: .*|websocket: .*|Not configured to accept leaf node connections)$`)

// render returns what the server has to say. If that is about a client, or a stranger, it
// returns the client's address and leaves out everything the server writes
// before the message. That must happen before formatting, because the server
// makes what a client says of itself part of the format: a client could have
// "%[1]1000000d" written a thousand times.
func render(format string, v []any) (text, address string, client bool) {
	m := clientLine.FindStringSubmatchIndex(format)
	if m != nil {
		address, client, format = format[m[2]:m[3]], true, format[m[1]:]
	}
	if text = format; len(v) > 0 {
		text = fmt.Sprintf(format, v...)
	}
	if client {
		return text, address, true
	}
	// Lines that the server limits by itself come with the client as an argument.
	if m := clientLine.FindStringSubmatchIndex(text); m != nil {
		return text[m[1]:], text[m[2]:m[3]], true
	}
	if m := strangerLine.FindStringSubmatch(text); m != nil {
		return m[2], m[1], true
	}
	return text, "", false
}

// slowConsumer begins what the server says of a client that does not read.
const slowConsumer = "Slow Consumer"

// mishaps are the server's lines about connections, told by how they begin,
// what we say instead, and whether the rest is the cause.
var mishaps = []struct {
	begin, msg string
	cause      bool
}{
	{"authentication error", "", false},             // the gate has said so, and why
	{"read error: authentication error", "", false}, // likewise, by WebSocket
	{"TLS handshake error: ", "tls handshake failed", true},
	{"websocket handshake error: ", "websocket refused", true},
	{"websocket: ", "websocket refused", true},
	{"Publish Violation - ", "publishing refused", true},
	{"Subscription Violation - ", "subscription refused", true},
	{"maximum control line exceeded", "client sent too long a line", false},
	{"maximum payload exceeded", "client sent too large a message", false},
	{"maximum subscriptions exceeded", "client has too many subscriptions", false},
	{"maximum connections exceeded", "too many connections", false},
	{"maximum account active connections exceeded", "too many connections in the account", false},
	{slowConsumer, "slow client dropped", false},
	{"Client parser ERROR", "client does not speak NATS", false},
}

// client passes on a line about a client.
func (l *natsLog) client(text, address string) {
	ctx, attr := context.Background(), slog.String("address", address)
	for _, k := range mishaps {
		rest, found := strings.CutPrefix(text, k.begin)
		switch {
		case !found:
			continue
		case k.msg == "":
		case k.cause:
			l.connection(ctx, k.msg, attr, slog.String("err", scrub(rest)))
		default:
			l.connection(ctx, k.msg, attr)
		}
		return
	}
	l.connection(ctx, "connection in trouble", attr)
}

// tokenShape matches a JWT, or what is left of one that was cut.
var tokenShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)*`)

// scrub returns text fit for a log: bounded, and without anything that looks
// like a token.
func scrub(text string) string {
	return bounded(tokenShape.ReplaceAllString(text, "(secret)"))
}
