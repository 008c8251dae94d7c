package provisioner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/limit"
	"muster/internal/wire"
)

func worthy() error { return nil }

var here, there = limit.Source("192.0.2.1"), limit.Source("192.0.2.2")

const web1, web2 wire.Identity = "web1.example.net", "web2.example.net"

func TestOneRequestPerIdentityAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l locks
		unlock, err := l.lock(t.Context(), web1, here, worthy)
		if err != nil {
			t.Fatal(err)
		}
		passed := make(chan func(), maxWaiting)
		for range maxWaiting {
			go func() {
				next, err := l.lock(t.Context(), web1, here, worthy)
				if err != nil {
					t.Error(err)
				}
				passed <- next
			}()
		}
		synctest.Wait()
		if len(passed) != 0 {
			t.Fatalf("%d passed while the first had the lock", len(passed))
		}
		if _, err := l.lock(t.Context(), web1, here, worthy); !errors.Is(err, errTooManyWaiting) {
			t.Errorf("one more than may wait: %v, want %v", err, errTooManyWaiting)
		}
		// Requests from one address keep no request from another address out.
		elsewhere := make(chan func(), 1)
		go func() {
			next, err := l.lock(t.Context(), web1, there, worthy)
			if err != nil {
				t.Errorf("another address: %v", err)
			}
			elsewhere <- next
		}()
		synctest.Wait()
		other, err := l.lock(t.Context(), web2, here, worthy)
		if err != nil {
			t.Errorf("another identity: %v", err)
		}
		other()
		for i := range maxWaiting {
			unlock()
			synctest.Wait()
			if len(passed) != 1 {
				t.Fatalf("%d passed when turn %d came, want 1", len(passed), i)
			}
			unlock = <-passed
		}
		unlock()
		(<-elsewhere)()
		if len(l.held) != 0 {
			t.Errorf("%d identities are locked without a holder", len(l.held))
		}
	})
}

func TestACanceledWaitLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l locks
		unlock, err := l.lock(t.Context(), web1, here, worthy)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 * maxWaiting { // more than may wait at once: canceled requests do not count
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := l.lock(ctx, web1, here, worthy); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("waited and got %v", err)
			}
			cancel()
		}
		unlock()
		if again, err := l.lock(t.Context(), web1, here, worthy); err != nil {
			t.Error(err)
		} else {
			again()
		}
		if len(l.held) != 0 {
			t.Errorf("%d identities are locked without a holder", len(l.held))
		}
	})
}

func TestAFailedPrecheckDoesNotQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l locks
		nothing := errors.New("nothing to wait for")
		worthless := func() error { return nothing }
		unlock, err := l.lock(t.Context(), web1, here, worthless)
		if err != nil {
			t.Fatalf("an identity without a holder: %v", err)
		}
		for range 3 {
			if _, err := l.lock(t.Context(), web1, here, worthless); !errors.Is(err, nothing) {
				t.Errorf("while it is held: %v, want %v", err, nothing)
			}
		}
		done := make(chan error)
		go func() {
			unlock, err := l.lock(t.Context(), web1, here, worthy)
			if err == nil {
				unlock()
			}
			done <- err
		}()
		synctest.Wait()
		unlock()
		if err := <-done; err != nil {
			t.Errorf("a request that passed its precheck: %v, want the lock", err)
		}
	})
}
