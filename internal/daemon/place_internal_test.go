package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestAPlaceIsLeftOnlyToWhoServes goes through what a provisioner may find of itself and
// of others, each looked at until nothing changes any more.
func TestAPlaceIsLeftOnlyToWhoServes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testPlace) // where time passes when nobody works
}

func testPlace(t *testing.T) {
	var why error
	var serves, silent bool
	asked := 0
	p := newPlace(func() error { return why }, func(ctx context.Context) bool {
		asked++
		if silent {
			<-ctx.Done()
			return false
		}
		return serves
	}, slog.New(slog.DiscardHandler))
	behind := errors.New("the clock is behind")
	look := func(what string, within time.Duration, want bool) {
		t.Helper()
		for began := time.Now(); time.Since(began) <= within; {
			p.look(t.Context())
			time.Sleep(placeEvery) //nolint:forbidigo // moves the bubble's clock
		}
		if aside, _ := p.now(); aside != want {
			t.Errorf("%s: stands aside = %v, want %v", what, aside, want)
		}
	}
	look("it can admit", time.Minute, false)
	if asked != 0 {
		t.Errorf("others were asked %d times although it serves", asked)
	}
	serves = true
	look("it can admit, and another one serves", time.Minute, false)

	why, serves = behind, false
	look("it cannot admit, and nobody serves", time.Minute, false)
	if asked > 61 {
		t.Errorf("others were asked %d times within a minute, want once a second at most", asked)
	}
	serves = true
	_, changed := p.now()
	look("another one serves", othersEvery, true)
	select {
	case <-changed:
	default:
		t.Error("who waits for a change does not hear of it")
	}
	for i := range othersEvery / placeEvery { // whenever it was asked last
		silent = true
		killed := time.Now()
		for aside := true; aside; aside, _ = p.now() {
			time.Sleep(placeEvery) //nolint:forbidigo // moves the bubble's clock
			p.look(t.Context())
		}
		if took := time.Since(killed); took > placeEvery+othersEvery {
			t.Errorf("the other one was killed: nobody is there for %v, want %v at most", took, placeEvery+othersEvery)
		}
		silent = false
		look("it is back", othersEvery+i*placeEvery, true)
	}
	why = nil
	look("it can admit again", placeEvery, false)
	why = behind
	look("it cannot admit, once more", placeEvery, true)
}
