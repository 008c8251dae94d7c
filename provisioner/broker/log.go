package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"

	"muster/internal/limit"
	"muster/internal/wire"
)

// Lines a second, and in one go, about connections. Strangers cause these, and
// more of them would say nothing new.
const (
	linesPerSecond = 20
	linesAtOnce    = 100
)

// natsLog is the logger of the NATS server. Of what the server writes about
// clients it passes on little, since such lines quote the beginning of a CONNECT, token and all.
type natsLog struct {
	log   *slog.Logger
	lines *limit.Keyed[struct{}] // about clients, of which there is one kind
	fatal chan error             // takes the first error with which the server would end the process
}

func newNATSLog(log *slog.Logger) *natsLog {
	return &natsLog{
		log:   log,
		lines: limit.NewKeyed[struct{}](limit.Rate{PerSecond: linesPerSecond, Burst: linesAtOnce}),
		fatal: make(chan error, 1),
	}
}

// failed returns why the server cannot start, or nil. It returns an error once.
func (l *natsLog) failed() error {
	select {
	case err := <-l.fatal:
		return err
	default:
		return nil
	}
}

// refuse logs and reports that the gate refused a connection, and returns the code. report may be nil.
func (l *natsLog) refuse(
	ctx context.Context, p Presented, err error, report func(context.Context, Presented, *Denied),
) wire.Code {
	d := deny(wire.CodeDenied, err)
	p = p.withoutSecrets()
	var attrs []slog.Attr
	if n := (*NotAdmitted)(nil); errors.As(d.Err, &n) {
		attrs = append(attrs, slog.String("node", string(n.Node)))
	}
	l.connection(ctx, "connection not admitted", append(attrs,
		slog.String("address", p.Address),
		slog.String("code", string(d.Code)),
		slog.String("err", scrub(d.Err.Error())),
	)...)
	if report != nil {
		report(ctx, p, d)
	}
	return d.Code
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
	if strings.Contains(format, "Slow Consumer") && !strings.Contains(format, "Recovered") {
		l.write(slog.LevelWarn, "nats server warned", format, v)
	}
}

// Debugf implements [server.Logger].
func (l *natsLog) Debugf(string, ...any) {}

// Tracef implements [server.Logger].
func (l *natsLog) Tracef(string, ...any) {}

// Warnf implements [server.Logger].
func (l *natsLog) Warnf(format string, v ...any) {
	l.write(slog.LevelWarn, "nats server warned", format, v)
}

// Errorf implements [server.Logger].
func (l *natsLog) Errorf(format string, v ...any) {
	l.write(slog.LevelError, "nats server failed", format, v)
}

// Fatalf implements [server.Logger]. The server expects the process to end, and
// returns if it does not.
func (l *natsLog) Fatalf(format string, v ...any) {
	text, _, _ := render(format, v)
	select {
	case l.fatal <- errors.New(scrub(text)):
	default: // the first one is the cause
		l.write(slog.LevelError, "nats server cannot go on", format, v)
	}
}

// write logs a line of the server's.
func (l *natsLog) write(level slog.Level, msg, format string, v []any) {
	ctx := context.Background()
	text, address, client := render(format, v)
	switch {
	case !client:
		l.log.Log(ctx, level, msg, "err", scrub(text)) //nolint:sloglint // callers pass literals
	case clientTrouble.MatchString(text):
		l.connection(ctx, "connection in trouble", slog.String("address", address), slog.String("err", scrub(text)))
	}
}

// clientTrouble is what the server says of clients that an operator can act on and in which only tokens can be secret.
// The gate logs the connections that it refuses.
var clientTrouble = regexp.MustCompile(`^(TLS handshake error|Publish Violation|Subscription Violation)\b`)

// clientLine is how the server begins a line about a connection, by WebSocket or not: address,
// number, and what the client says of itself, quoted.
var clientLine = regexp.MustCompile(`^(\S+) - [cw]id:(\d+)(?: - "(?:[^"\\]|\\.)*")* - `)

// strangerLine is how the server begins a line about a client that asks for a WebSocket and has none yet.
var strangerLine = regexp.MustCompile(`^(\S+ - )?(websocket\b|Not configured to accept leaf node connections)`)

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
	return text, "", strangerLine.MatchString(text)
}

// tokenShape matches a JWT, or what is left of one that was cut.
var tokenShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)*`)

// scrub returns text fit for a log: bounded, and without anything that looks
// like a token.
func scrub(text string) string {
	return bounded(tokenShape.ReplaceAllString(text, "(secret)"))
}
