package span

import (
	"context"
	"time"
)

// Sleep reports whether d passed before ctx was done.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return ctx.Err() == nil
	}
}

// Every calls what at once, and then each time that d has passed, until ctx is done. It returns nil.
func Every(ctx context.Context, d time.Duration, what func(context.Context)) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		what(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
