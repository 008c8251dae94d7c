package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhoIsHeldHearsInTheEnd has more be refused than are held at a time.
func TestWhoIsHeldHearsInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, many = 3, 10
		h := newHeld(most)
		life, end := context.WithCancel(t.Context())
		defer end()
		took := make(chan time.Duration, many)
		begin := func() {
			for range many {
				go func() {
					begun := time.Now()
					h.wait(life)
					took <- time.Since(begun)
				}()
			}
		}
		count := func(pause time.Duration) (n int) {
			for range many {
				switch d := <-took; d {
				case pause:
					n++
				case 0:
				default:
					t.Errorf("one is held for %v", d)
				}
			}
			return n
		}
		for range 2 { // who has heard makes room for others
			begin()
			if n := count(refusalPause); n != most {
				t.Errorf("%d of %d are held, want %d", n, many, most)
			}
		}
		begin()
		synctest.Wait()
		if n := len(took); n != many-most {
			t.Errorf("%d hear at once, want %d", n, many-most)
		}
		end() // all hear
		if n := count(refusalPause); n != 0 {
			t.Errorf("%d are held when the broker ends", n)
		}
	})
}
