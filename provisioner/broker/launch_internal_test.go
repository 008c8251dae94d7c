package broker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestALaunchThatHangs is waited for, and told as one in the end: nothing else than the
// end of the process helps.
func TestALaunchThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &Broker{lock: new(os.File), launched: &launch{begun: time.Now(), done: make(chan struct{})}}
		for waited := time.Minute; waited <= 2*launchTimeout; waited += time.Minute {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := b.Restart(ctx)
			cancel()
			if hangs := waited >= launchTimeout; errors.Is(err, ErrHangs) != hangs || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: %v, want to be told that it hangs: %v", waited, err, hangs)
			}
		}
	})
}

// TestAWriteThatFailsBeforeTheServerIsOfUse is told again when it is: whoever waited for
// it may have forgotten by then whose it was.
func TestAWriteThatFailsBeforeTheServerIsOfUse(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	l := &launch{done: make(chan struct{}), server: s}
	l.life, l.cancel = context.WithCancel(t.Context())
	b := &Broker{lock: new(os.File), launched: l, log: newNATSLog(slog.New(slog.DiscardHandler), func(error) { told++ })}
	b.log.Errorf("%s", writeError)
	close(l.done)
	if err := b.Restart(t.Context()); err != nil || told != 2 {
		t.Errorf("Restart = %v, told %d times, want twice", err, told)
	}
	l.cancel()
}
