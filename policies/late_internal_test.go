package policies

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"
)

// TestWhatGotNoTimeIsNotLate looks at when an evaluation that does not end is ended,
// in processes that get more or less of the CPU.
func TestWhatGotNoTimeIsNotLate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		share float64 // of one core
		want  time.Duration
	}{
		"a core":           {1, time.Second},
		"two":              {2, time.Second},
		"half of one":      {0.5, time.Second},
		"less than a half": {0.4, 1500 * time.Millisecond},
		"a fifth":          {0.2, 2 * time.Second},
		"a tenth":          {0.1, 3 * time.Second},
		"hardly any":       {0.01, 4 * time.Second},
		"none: a SIGSTOP":  {0, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				e := topdown.NewCancel()
				endLate(e, time.Second, func() time.Duration { return time.Duration(tt.share * float64(time.Since(begun))) })
				for !e.Cancelled() { //nolint:misspell // OPA spells it so
					<-time.After(time.Second / 10) // of the bubble's clock
					synctest.Wait()
				}
				if took := time.Since(begun); took != tt.want {
					t.Errorf("ended after %v, want %v", took, tt.want)
				}
			})
		})
	}
}

// TestWhatHasEndedIsNotEnded stops the clock of an evaluation that was in time.
func TestWhatHasEndedIsNotEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := topdown.NewCancel()
		if stop := endLate(e, time.Second, processTime); !stop() {
			t.Error("the clock had stopped before")
		}
		<-time.After(time.Hour)
		if e.Cancelled() { //nolint:misspell // OPA spells it so
			t.Error("it was ended")
		}
	})
}
