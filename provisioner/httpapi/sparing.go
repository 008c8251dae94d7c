package httpapi

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Lines a second, and in one go, about connections that come to nothing. Strangers cause
// these, and more of them would tell nobody more; chosen, as in package broker.
const (
	linesPerSecond = 20
	linesAtOnce    = 100
)

// A sparing handler passes on so many lines, and says of the next one how many it has left out.
type sparing struct {
	slog.Handler

	limit  *rate.Limiter
	unsaid atomic.Int64
}

func newSparing(to slog.Handler) *sparing {
	return &sparing{Handler: to, limit: rate.NewLimiter(linesPerSecond, linesAtOnce)}
}

// Handle implements [slog.Handler].
func (s *sparing) Handle(ctx context.Context, r slog.Record) error {
	if !s.limit.Allow() {
		s.unsaid.Add(1)
		return nil
	}
	if n := s.unsaid.Swap(0); n > 0 {
		r.AddAttrs(slog.Int64("lines_left_out", n))
	}
	return s.Handler.Handle(ctx, r)
}
