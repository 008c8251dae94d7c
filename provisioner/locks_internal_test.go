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

var here, there = limit.Source("192.0.2.1"), limit.Source("192.0.2.2")

const web1, web2 wire.Identity = "web1.example.net", "web2.example.net"

func TestOneRequestPerIdentityAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l locks
		unlock, err := l.lock(t.Context(), web1, here)
		if err != nil {
			t.Fatal(err)
		}
		passed := make(chan func(), maxWaiting)
		for range maxWaiting {
			go func() {
				next, err := l.lock(t.Context(), web1, here)
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
		if _, err := l.lock(t.Context(), web1, here); !errors.Is(err, errTooManyWaiting) {
			t.Errorf("one more than may wait: %v, want %v", err, errTooManyWaiting)
		}
		// Requests from one address keep no request from another address out.
		elsewhere := make(chan func(), 1)
		go func() {
			next, err := l.lock(t.Context(), web1, there)
			if err != nil {
				t.Errorf("another address: %v", err)
			}
			elsewhere <- next
		}()
		synctest.Wait()
		other, err := l.lock(t.Context(), web2, here)
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
		unlock, err := l.lock(t.Context(), web1, here)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 * maxWaiting { // more than may wait at once: canceled requests do not count
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := l.lock(ctx, web1, here); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("waited and got %v", err)
			}
			cancel()
		}
		unlock()
		if again, err := l.lock(t.Context(), web1, here); err != nil {
			t.Error(err)
		} else {
			again()
		}
		if len(l.held) != 0 {
			t.Errorf("%d identities are locked without a holder", len(l.held))
		}
	})
}
