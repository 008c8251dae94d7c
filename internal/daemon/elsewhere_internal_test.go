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
	"muster/jwt"
	"muster/provisioner"
)

// listing is an elsewhere at a site, and what it did: when it looked, and at whom.
type listing struct {
	*elsewhere

	guard sync.Mutex
	began time.Time // guarded by guard, as the rest
	looks []string
	fail  error
}

// set has looks fail, or not if fail is nil.
func (l *listing) set(fail error) {
	l.guard.Lock()
	defer l.guard.Unlock()
	l.fail = fail
}

// at are provisioners of these sites.
func at(sites ...jwt.Site) (all []*provisioner.HeardComponent) {
	for _, s := range sites {
		all = append(all, &provisioner.HeardComponent{Component: provisioner.Component{Name: "provisioner", Site: s}})
	}
	return all
}

// note notes a look, and returns what it is to fail with.
func (l *listing) note(who any) error {
	l.guard.Lock()
	defer l.guard.Unlock()
	l.looks = append(l.looks, fmt.Sprint(time.Since(l.began), " ", who))
	return l.fail
}

// newListing returns one that runs until the test ends, in a bubble.
func newListing(t *testing.T) *listing {
	t.Helper()
	l := &listing{elsewhere: newElsewhere("", 5*time.Second, slog.New(slog.DiscardHandler)), began: time.Now()}
	l.everybody = func() { _ = l.note("everybody") }
	l.recheck = func(_ context.Context, ids ...wire.Identity) ([]wire.Identity, error) {
		slices.Sort(ids)
		if err := l.note(ids); err != nil {
			return ids, err
		}
		return nil, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

// looked waits for a while, and expects these looks, and no others, since the last call. Those
// of the next are counted from then on.
func (l *listing) looked(t *testing.T, wait time.Duration, want ...string) {
	t.Helper()
	<-time.After(wait)
	l.guard.Lock()
	defer l.guard.Unlock()
	if !slices.Equal(l.looks, want) {
		t.Errorf("looks %q, want %q", l.looks, want)
	}
	l.looks, l.began = nil, time.Now()
}

// TestWhatOthersSupersedeIsLookedAtTwiceAndSeldom has other processes write about nodes: the
// first is looked at at once, and once more when all that was admitted has appeared, and those
// that are written about meanwhile together with it.
func TestWhatOthersSupersedeIsLookedAtTwiceAndSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newListing(t)
		l.sees(at("", "ams1"))
		l.add("a")
		<-time.After(time.Second)
		l.add("b")
		l.add("c")
		l.looked(t, time.Hour, "100ms [a]", "5.1s [a b c]", "10.1s [b c]")

		l.set(errors.New("a server is silent"))
		l.add("d")
		<-time.After(8 * time.Second)
		l.set(nil)
		l.looked(t, time.Hour, "100ms [d]", "5.1s [d]", "10.1s [d]")

		l.listed()
		l.looked(t, time.Hour, "0s everybody")
	})
}

// TestWithoutSitesWhoWroteLooks has a provisioner at the hub learn who else there is: while
// there is no site, whoever wrote sees all connections there are. What is written before that
// is known is kept until it is; once there was a site, there is one.
func TestWithoutSitesWhoWroteLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newListing(t)
		l.add("a")
		l.looked(t, time.Hour)
		l.sees(at("", ""))
		l.add("b")
		l.listed()
		l.looked(t, time.Hour)

		l.sees(at("", "ams1"))
		l.looked(t, time.Hour, "0s everybody")
		l.sees(at(""))
		l.add("c")
		l.looked(t, time.Hour, "100ms [c]", "5.1s [c]")
	})
	synctest.Test(t, func(t *testing.T) {
		l := newListing(t)
		l.add("a")
		l.listed()
		<-time.After(time.Second)
		l.sees(at("", "ams1"))
		l.looked(t, time.Hour, "0s everybody", "1.1s [a]", "6.1s [a]")
	})
}
