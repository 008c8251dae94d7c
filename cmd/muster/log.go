package main

import (
	"io"
	"log/slog"

	"github.com/alecthomas/kingpin/v2"
)

// addLogFlags adds the flags that say how a daemon logs.
func addLogFlags(c *kingpin.CmdClause, level, format *string) {
	c.Flag("log-level", "Least level that is logged: debug, info, warn, error.").Default("info").EnumVar(level, "debug", "info", "warn", "error")
	c.Flag("log-format", "text for people, json for machines.").Default("text").EnumVar(format, "text", "json")
}

// newLog returns a logger to w.
func newLog(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), nil
}
