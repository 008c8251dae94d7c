package cli

import (
	"io"
	"log/slog"

	"github.com/alecthomas/kingpin/v2"
)

// printable writes lines of JSON as [PrintableJSON]. The handler for text quotes what is unprintable by itself.
type printable struct{ io.Writer }

func (p printable) Write(line []byte) (int, error) {
	_, err := p.Writer.Write(PrintableJSON(line))
	return len(line), err
}

// LogFlags are the flags of a daemon's log.
type LogFlags struct {
	level, format string
}

// Add adds the flags to a command.
func (f *LogFlags) Add(c *kingpin.CmdClause) {
	Enum(Flag(c, "log-level"), &f.level, "debug", "info", "warn", "error")
	Enum(Flag(c, "log-format").Default("text"), &f.format, "text", "json")
}

// New returns a logger to w and its level, which is info until set otherwise. The level is nil if the flags fix it.
func (f *LogFlags) New(w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	options := &slog.HandlerOptions{Level: level}
	handler := slog.Handler(slog.NewTextHandler(w, options))
	if f.format == "json" {
		handler = slog.NewJSONHandler(printable{w}, options)
	}
	if f.level == "" {
		return slog.New(handler), level
	}
	_ = level.UnmarshalText([]byte(f.level)) // the flag takes no other text
	return slog.New(handler), nil
}
