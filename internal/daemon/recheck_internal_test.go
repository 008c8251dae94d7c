package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/wire"
)

// TestNodesAreRecheckedUntilItSucceeds has a broker that fails once and shows connections late.
func TestNodesAreRecheckedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var checked []string // guarded by mu: second and node
		fail := true
		r := &rechecker{
			some: func(_ context.Context, ids ...wire.Identity) error {
				mu.Lock()
				defer mu.Unlock()
				slices.Sort(ids)
				checked = append(checked, fmt.Sprintf("%v %v", time.Since(began).Round(time.Second), ids))
				defer func() { fail = false }()
				if fail {
					return errors.New("a server is silent")
				}
				return nil
			},
			every: func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				checked = append(checked, fmt.Sprintf("%v all", time.Since(began).Round(time.Second)))
				return nil
			},
			log:     slog.New(slog.DiscardHandler),
			later:   5 * time.Second,
			waiting: make(map[wire.Identity]bool),
			wake:    make(chan struct{}, 1),
			wakeAll: make(chan struct{}, 1),
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = r.run(ctx) }()
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // moves the bubble's clock
		r.add("b.example.net")
		r.add("a.example.net")
		time.Sleep(time.Minute) //nolint:forbidigo // likewise
		r.all()
		time.Sleep(recheckInterval + time.Second) //nolint:forbidigo // likewise
		cancel()
		<-done
		want := []string{
			"0s [a.example.net b.example.net]", "0s all", "1s [a.example.net b.example.net]",
			"5s [a.example.net b.example.net]",
			"1m0s all", "6m0s all",
		}
		slices.Sort(checked[:2]) // both after a tenth of a second
		if !slices.Equal(checked, want) {
			t.Errorf("checked %q, want %q", checked, want)
		}
	})
}
