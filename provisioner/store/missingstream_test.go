package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/provisioner/events"
)

// TestReaderOfAMissingStreamCanStop deletes a stream while it is read: readers stop on cancel, also while the library
// retries.
func TestReaderOfAMissingStreamCanStop(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	requests := func(subject string) func() {
		t.Helper()
		sub, err := s.conn.SubscribeSync("$JS.API.CONSUMER." + subject)
		if err := errors.Join(err, s.conn.Flush()); err != nil {
			t.Fatal(err)
		}
		return func() {
			t.Helper()
			if _, err := sub.NextMsg(30 * time.Second); err != nil {
				t.Fatalf("no request comes to %s: %v", sub.Subject, err)
			}
		}
	}
	// of a made consumer: a reader without one gets an error
	pulls := requests("MSG.NEXT.MUSTER_ATTEMPTS.>")
	reading, cancel := context.WithCancel(s.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- st.Events(reading, events.Query{}, func(*events.Stored) error { return nil })
	}()
	pulls()
	asks := requests("CREATE.MUSTER_ATTEMPTS.>")
	if err := s.js.DeleteStream(s.ctx, "MUSTER_ATTEMPTS"); err != nil {
		t.Fatal(err)
	}
	asks() // again, for a missing stream
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("Events of a stream that is gone have come to an end")
		}
	case <-time.After(time.Minute):
		t.Error("Events goes on a minute after it was told to stop")
	}
}
