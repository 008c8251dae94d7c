package policies

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// TestFilesAreReadOnceTheyRest has files change for a while: they are read when that is
// over, since half a policy may be one too, and after up to twenty seconds if it never is.
func TestFilesAreReadOnceTheyRest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		changes []time.Duration // since the start
		every   time.Duration   // and then for as long as it takes; 0 if not
		want    []time.Duration
	}{
		{"nothing changes", nil, 0, []time.Duration{10 * time.Second, 20 * time.Second}},
		{"one change", []time.Duration{time.Second}, 0, []time.Duration{1200 * time.Millisecond, 10 * time.Second, 20 * time.Second}},
		{
			"a file is written slowly",
			[]time.Duration{1000 * time.Millisecond, 1150 * time.Millisecond, 1300 * time.Millisecond, 1450 * time.Millisecond},
			0,
			[]time.Duration{1650 * time.Millisecond, 10 * time.Second, 20 * time.Second},
		},
		{
			"it is written when they would have been read anyway",
			[]time.Duration{9900 * time.Millisecond, 10050 * time.Millisecond},
			0,
			[]time.Duration{10250 * time.Millisecond, 20 * time.Second},
		},
		{"it changes without end", []time.Duration{time.Second}, 100 * time.Millisecond, []time.Duration{20 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				told, ended := make(chan fsnotify.Event), make(chan struct{})
				start := time.Now()
				var got []time.Duration
				go func() {
					defer close(ended)
					whenSettled(ctx, told, nil, func(context.Context) { got = append(got, time.Since(start)) }, nil)
				}()
				for _, at := range tt.changes {
					<-time.After(time.Until(start.Add(at)))
					told <- fsnotify.Event{}
				}
				for end := start.Add(25 * time.Second); time.Now().Before(end); {
					if tt.every == 0 {
						<-time.After(time.Until(end))
						break
					}
					<-time.After(tt.every)
					told <- fsnotify.Event{}
				}
				stop()
				<-ended
				if !slices.Equal(got, tt.want) {
					t.Errorf("read after %v, want %v", got, tt.want)
				}
			})
		})
	}
}
