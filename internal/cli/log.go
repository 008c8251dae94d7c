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

// Add adds the flags to a command. otherwise says what the level is if none is
// given.
func (f *LogFlags) Add(c *kingpin.CmdClause, otherwise string) {
	Enum(c.Flag("log-level", "Least level that is logged. Default: "+otherwise+".").PlaceHolder("debug|info|warn|error"),
		&f.level, "debug", "info", "warn", "error")
	Enum(c.Flag("log-format", "How the log on standard error is written: for people, or for programs.").Default("text"),
		&f.format, "text", "json")
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
