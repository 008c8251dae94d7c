package store_test

import (
	"context"
	"testing"
	"time"

	"muster/provisioner"
)

// TestWhoLooksCanStop has a stream go away while it is read: whoever reads stops when
// told to, also while the library asks for it over and over.
func TestWhoLooksCanStop(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	asked, err := s.conn.SubscribeSync("$JS.API.CONSUMER.CREATE.MUSTER_ATTEMPTS.>") // with each consumer
	if err != nil {
		t.Fatal(err)
	}
	asks := func() {
		t.Helper()
		if _, err := asked.NextMsg(30 * time.Second); err != nil {
			t.Fatalf("nobody asks for a consumer: %v", err)
		}
	}
	reading, cancel := context.WithCancel(s.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- st.Events(reading, provisioner.EventQuery{}, func(*provisioner.StoredEvent) error { return nil })
	}()
	asks()
	if err := s.js.DeleteStream(s.ctx, "MUSTER_ATTEMPTS"); err != nil {
		t.Fatal(err)
	}
	asks() // again, for what is not there
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
