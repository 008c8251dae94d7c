package provisioner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAChangeFinishesAfterItsCallerIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx, goes := context.WithCancel(context.WithValue(t.Context(), key{}, "anna"))
		finishing, end := Finishing(ctx)
		defer end()
		if got := finishing.Value(key{}); got != "anna" {
			t.Errorf("the value is %v", got)
		}
		<-time.After(time.Hour) // of the bubble
		goes()
		<-time.After(finishTimeout - time.Nanosecond) // of the bubble
		synctest.Wait()
		if err := finishing.Err(); err != nil {
			t.Errorf("ended early: %v", err)
		}
		<-time.After(time.Nanosecond) // of the bubble
		synctest.Wait()
		if finishing.Err() == nil {
			t.Error("goes on for ever")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, goes := context.WithCancel(t.Context())
		finishing, end := Finishing(ctx)
		end()
		goes()
		if finishing.Err() == nil {
			t.Error("goes on after its end")
		}
	})
}
