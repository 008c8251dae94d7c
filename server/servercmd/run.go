package servercmd

import (
	"context"
	"io"
	"log/slog"
	"os"

	"muster/internal/cli"
	"muster/server"
)

// runVerb is "run": the agent, until a signal.
type runVerb struct {
	files
	level  string
	format string
	log    io.Writer
}

// AddRun adds the verb run: the agent itself.
func AddRun(to Parent, all Verbs) {
	v := &runVerb{log: os.Stderr}
	c := to.Command("run", "Run the node agent: enroll if need be, then stay connected to the fleet.")
	c.HelpLong("Without a usable configuration, and with a token signed with --default, the node is provisioned: it sends " +
		"the token, a certificate request and its facts, and gets a certificate and a configuration. Then, and from then " +
		"on, it keeps a mutually authenticated connection to the fleet. Ends with SIGTERM.")
	v.add(c)
	c.Flag("log-level", "Least level that is logged. Default: `log_level` of the configuration, else info.").
		PlaceHolder("debug|info|warn|error").EnumVar(&v.level, "debug", "info", "warn", "error")
	c.Flag("log-format", "How the log on standard error is written: for people, or for programs.").
		Default("text").EnumVar(&v.format, "text", "json")
	all[c.FullCommand()] = v.run
}

func (v *runVerb) run(ctx context.Context) error {
	level := new(slog.LevelVar)
	if v.level != "" {
		if err := level.UnmarshalText([]byte(v.level)); err != nil {
			return err
		}
	} else {
		v.cfg.Level = level // the configuration's to set
	}
	options := &slog.HandlerOptions{Level: level}
	handler := slog.Handler(slog.NewTextHandler(v.log, options))
	if v.format == "json" {
		handler = slog.NewJSONHandler(v.log, options)
	}
	v.cfg.Log = slog.New(handler)
	v.cfg.Version = cli.Version()
	s, err := server.New(v.cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
