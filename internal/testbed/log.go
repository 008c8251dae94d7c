package testbed

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Lines of log that a failed test prints.
const lastLines = 200

// logBuffer keeps the fleet's log.
type logBuffer struct {
	quiet bool

	mu sync.Mutex
	b  bytes.Buffer
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

func (l *logBuffer) last(n int) string {
	var lines []string
	for line := range strings.Lines(l.String()) {
		if !strings.Contains(line, `"level":"DEBUG"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

func (l *logBuffer) logger() *slog.Logger {
	level := slog.LevelDebug
	if l.quiet {
		level = slog.LevelWarn
	}
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}
