package cli

import (
	"io"
	"log/slog"

	"github.com/alecthomas/kingpin/v2"
)

// LogFlags are the flags of a daemon that say how it logs.
type LogFlags struct {
	level, format string
}

// Add adds the flags to a command.
func (f *LogFlags) Add(c *kingpin.CmdClause) {
	Enum(Flag(c, "log-level"), &f.level, "debug", "info", "warn", "error")
	Enum(Flag(c, "log-format").Default("text"), &f.format, "text", "json")
}

// New returns a logger to w, and its level, which is info until somebody sets
// another; or nil for the level if the flags have fixed it.
func (f *LogFlags) New(w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	options := &slog.HandlerOptions{Level: level}
	handler := slog.Handler(slog.NewTextHandler(w, options))
	if f.format == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	if f.level == "" {
		return slog.New(handler), level
	}
	_ = level.UnmarshalText([]byte(f.level)) // one of those that the flag takes
	return slog.New(handler), nil
}
