package daemon

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestAHangingPartIsNotAlive looks at all parts at different times before a probe.
func TestAHangingPartIsNotAlive(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		serving, stopping bool
		ago               time.Duration
		want              error
	}{
		"a moment ago":           {serving: true, ago: time.Second},
		"long ago":               {serving: true, ago: 2 * hangs, want: errHangs},
		"long ago, in the stop":  {serving: true, stopping: true, ago: 2 * hangs},
		"long ago, in the start": {ago: 2 * hangs},
	} {
		d := &Daemon{base: &base{}, monitor: &monitor{}}
		d.live.serving.Store(tt.serving)
		looked := time.Now().Add(-tt.ago)
		d.monitor.looked.Store(&looked)
		ctx, stop := context.WithCancel(t.Context())
		if tt.stopping {
			stop()
		}
		if err := d.hangs(ctx); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		stop()
	}
}
