package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestACallThatWasLeftToItself is waited for by the next: what it found counts, and that
// it failed does not, since it may have been too late.
func TestACallThatWasLeftToItself(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err   error
		found int // by the next
	}{
		"a success": {nil, 1}, "a failure": {context.DeadlineExceeded, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var c diskCall[int]
				answers := make(chan error)
				calls := 0
				ask := func() (int, error) {
					calls++
					n := calls
					return n, <-answers
				}
				for range 2 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if _, err := c.do(ctx, ask); !errors.Is(err, errLate) {
						t.Errorf("no answer: %v, want %v", err, errLate)
					}
				}
				answers <- tt.err
				go func() { answers <- nil }()
				if n, err := c.do(t.Context(), ask); n != tt.found || err != nil {
					t.Errorf("found %d, %v, want what call %d found", n, err, tt.found)
				}
				if tt.err == nil {
					<-answers // nobody asked again
				}
			})
		})
	}
}
