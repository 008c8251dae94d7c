package events_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"muster/provisioner/events"
)

// A quietLog has no events. The first time it is followed, the reader loses it.
type quietLog struct{ followed atomic.Int32 }

func (l *quietLog) Events(ctx context.Context, q events.Query, _ func(*events.Stored) error) error {
	if q.Once {
		return nil
	}
	if l.followed.Add(1) == 1 {
		return errors.New("no leader")
	}
	<-ctx.Done()
	return ctx.Err()
}

// A log that was lost for a moment, and has no new event, is known to be whole again.
func TestALogThatIsBackIsNotBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &quietLog{}
		r := events.NewRecent(log, slog.New(slog.DiscardHandler), time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		counts := func() error {
			_, _, err := r.Counts(t.Context(), events.Periods[0])
			return err
		}
		_ = counts() // it reads from the first use on
		synctest.Wait()
		if err := counts(); err == nil {
			t.Error("the lost log is whole")
		}
		<-time.After(time.Minute) // of the test's clock
		synctest.Wait()
		if err := counts(); err != nil || log.followed.Load() != 2 {
			t.Errorf("after a minute: %v, followed %d times", err, log.followed.Load())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
