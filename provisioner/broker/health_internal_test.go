package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Checks take seven seconds each: that is reported until the check ends. One failed check is not yet a failure.
func TestSlowDiskIsNotAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		looks, slow, over := 0, 0, 0
		err := watchHealth(ctx, func() error {
			time.Sleep(7 * time.Second) //nolint:forbidigo // moves the bubble's clock
			if looks++; looks == 3 {
				return errors.New("a stream was busy")
			}
			return nil
		}, func(err error) {
			if err != nil {
				slow++
			} else {
				over++
			}
		})
		if err != nil || slow < 5 || over < slow-1 {
			t.Errorf("watch = %v, slow %d times, over %d times", err, slow, over)
		}
		synctest.Wait()
		time.Sleep(10 * time.Second) //nolint:forbidigo // moves the bubble's clock: the last look ends
	})
}
