package testbed

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// lastLines is how much of its log a fleet shows when its test has failed.
const lastLines = 200

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

// last returns the last n lines that are above debug level.
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
