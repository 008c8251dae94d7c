package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/provisioner/events"
)

// Limits of log lines that any client can cause, by address. Together, all addresses may cause allLines times as many.
const (
	linesPerSecond = 20
	linesAtOnce    = 100
	allLines       = 3
)

// natsLog drops most lines about clients, which quote tokens.
type natsLog struct {
	log   *slog.Logger
	lines *limit.Keyed[netip.Prefix] // limits lines about clients
	fatal chan error                 // receives the first fatal error
}

func newNATSLog(log *slog.Logger) *natsLog {
	return &natsLog{
		log:   log,
		lines: limit.NewKeyed[netip.Prefix](limit.Rate{PerSecond: linesPerSecond, Burst: linesAtOnce, All: allLines}),
		fatal: make(chan error, 1),
	}
}

func (l *natsLog) failed() error {
	select {
	case err := <-l.fatal:
		return err
	default:
		return nil
	}
}

// refuse logs a refused connection and returns the code. report may be nil.
func (l *natsLog) refuse(
	ctx context.Context, p Presented, err error, report func(context.Context, Presented, *Denied),
) wire.Code {
	d := deny(wire.CodeDenied, err)
	p = p.withoutSecrets()
	var attrs []slog.Attr
	if n := (*NotAdmitted)(nil); errors.As(d.Err, &n) {
		attrs = append(attrs, slog.String("node", string(n.Node)))
	}
	l.connection(ctx, p.Address, "connection not admitted", append(attrs,
		slog.String("address", p.Address),
		slog.String("code", string(d.Code)),
		slog.String("err", scrub(d.Err.Error())),
	)...)
	if report != nil {
		report(ctx, p, d)
	}
	return d.Code
}

func (l *natsLog) connection(ctx context.Context, address, msg string, attrs ...slog.Attr) {
	leftOut, ok := l.lines.Take(limit.Source(address))
	if !ok {
		return
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int64("lines_left_out", leftOut))
	}
	l.log.LogAttrs(ctx, slog.LevelWarn, msg, attrs...) //nolint:sloglint // callers pass literals
}

// logErrors drops errors of malformed headers, which any client can cause.
func logErrors(log *slog.Logger) nats.Option {
	return nats.ErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) {
		if !errors.Is(err, nats.ErrBadHeaderMsg) {
			log.Warn("error on a connection to the broker", "name", nc.Opts.Name, "err", err)
		}
	})
}

// Noticef implements [server.Logger]. Only slow consumers matter.
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

// Fatalf implements [server.Logger].
func (l *natsLog) Fatalf(format string, v ...any) {
	text, _, _ := render(format, v)
	select {
	case l.fatal <- errors.New(scrub(text)):
	default: // the first error is the cause
		l.write(slog.LevelError, "nats server could not continue", format, v)
	}
}

func (l *natsLog) write(level slog.Level, msg, format string, v []any) {
	ctx := context.Background()
	text, address, client := render(format, v)
	switch {
	case !client:
		l.log.Log(ctx, level, msg, "err", scrub(text)) //nolint:sloglint // callers pass literals
	case clientTrouble.MatchString(text):
		l.connection(ctx, address, "client error", slog.String("address", address), slog.String("err", scrub(text)))
	}
}

var clientTrouble = regexp.MustCompile(`^(TLS handshake error|Publish Violation|Subscription Violation)\b`)

// clientLine matches the prefix of a line about a client: address, number and quoted details.
var clientLine = regexp.MustCompile(`^(\S+) - [cw]id:(\d+)(?: - "(?:[^"\\]|\\.)*")* - `)

var handshakeLine = regexp.MustCompile(`^(\S+ - )?(websocket\b|Not configured to accept leaf node connections)`)

// render returns the text and, for a line about a client, its address. It removes the prefix before formatting,
// because a client can put "%[1]1000000d" into it.
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
	if m := clientLine.FindStringSubmatchIndex(text); m != nil {
		return text[m[1]:], text[m[2]:m[3]], true
	}
	return text, "", handshakeLine.MatchString(text)
}

func scrub(text string) string { return events.Cut(events.Scrub(text), 200) }
