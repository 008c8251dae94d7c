package testbed

import (
	"bytes"
	"log/slog"
	"sync"
)

// logBuffer keeps everything that a fleet logged, at debug level unless quiet.
type logBuffer struct {
	quiet bool

	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger() *slog.Logger {
	level := slog.LevelDebug
	if l.quiet {
		level = slog.LevelWarn
	}
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}
