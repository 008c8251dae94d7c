package policies

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long nothing may have changed before the files are read: writing
	// a file, or unpacking several, is many events. Half a policy may compile and pass,
	// without the denials that come at its end.
	settle = 200 * time.Millisecond

	// pollInterval is how often to look without having been told: network file
	// systems tell nothing, nor does a change behind a link to somewhere else. It is
	// also the longest that changes which never end are waited for, up to twice that.
	pollInterval = 10 * time.Second
)

// Run watches the files of [Config].Paths until ctx is done and reloads the
// policy when they change, as [Engine.Reload] does. A policy that is refused
// is logged as an error, once, and the one in use stays. If the system lets nobody
// watch, it says so and looks every ten seconds. Run returns nil. Without Paths it
// just waits.
func (e *Engine) Run(ctx context.Context) error {
	if len(e.cfg.Paths) == 0 {
		<-ctx.Done()
		return nil
	}
	f := follower{engine: e}
	var told <-chan fsnotify.Event // nil if nobody tells
	var stumbled <-chan error
	if w, err := e.newWatcher(); err != nil {
		e.cfg.Log.WarnContext(ctx, "policy is not watched, it is looked at again and again", "every", pollInterval, "err", err,
			"remedy", "where too many files are open, raise fs.inotify.max_user_instances")
	} else {
		defer w.Close() //nolint:errcheck // nothing was written
		f.watcher, told, stumbled = w, w.Events, w.Errors
	}
	f.follow(ctx) // what changed between Load and Run
	whenSettled(ctx, told, stumbled, f.follow, func(err error) {
		e.cfg.Log.WarnContext(ctx, "policy watch stumbled", "err", err)
	})
	return nil
}

// whenSettled calls follow once nothing has been told for a while after something was, and
// now and then without that, until ctx is done. What stumbled tells is also said.
func whenSettled(ctx context.Context, told <-chan fsnotify.Event, stumbled <-chan error, follow func(context.Context), say func(error)) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	settled := time.NewTimer(settle)
	settled.Stop()
	changing, waited := false, false // since the poll before
	for {
		select {
		case <-ctx.Done():
			return
		case <-told:
			// Whatever it was: links are swapped under names that are not ours. Reading
			// the files says whether it matters.
			changing = true
			settled.Reset(settle)
		case err := <-stumbled:
			say(err) // most likely an overflow, so something has changed
			changing = true
			settled.Reset(settle)
		case <-settled.C:
			changing, waited = false, false
			follow(ctx)
		case <-poll.C:
			if !changing || waited {
				follow(ctx)
			}
			waited = changing
		}
	}
}

// A follower keeps an engine's policy in step with its files. Only the
// goroutine of Run touches it.
type follower struct {
	engine  *Engine
	watcher *fsnotify.Watcher // nil if the system has none
	watched []string          // directories
	said    string            // the last failure that was logged, "" if none
}

// follow reloads the policy if its files have changed. It watches before it
// reads: a change after the reading is then always told.
func (f *follower) follow(ctx context.Context) {
	e := f.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	changed, err := false, error(nil)
	for range 3 { // until reading finds no directory that is not watched yet
		f.watch(e.dirs)
		before := e.dirs
		start, old := e.cfg.Now(), e.Digest()
		if changed, err = e.reload(ctx); changed {
			e.cfg.Log.InfoContext(ctx, "policy reloaded", "policy", e.Digest(), "before", old, "elapsed", e.cfg.Now().Sub(start))
		}
		if slices.Equal(before, e.dirs) {
			break
		}
	}
	switch {
	case ctx.Err() != nil: // stopped in the middle, which is no fault of the policy
	case err != nil:
		said := e.refused + err.Error()
		if said != f.said {
			e.cfg.Log.ErrorContext(ctx, "policy not reloaded, the one before stays in use", "policy", e.Digest(), "err", err)
		}
		f.said = said
	case f.said != "" && !changed:
		e.cfg.Log.InfoContext(ctx, "policy files are again those in use", "policy", e.Digest())
		f.said = ""
	default:
		f.said = ""
	}
}

// watch watches dirs and the directories that hold the configured paths. All
// are watched anew each time: a name that was taken by another directory, as
// when a link is swapped, would otherwise stay watched at its old place.
func (f *follower) watch(dirs []string) {
	if f.watcher == nil {
		return
	}
	for _, d := range f.watched {
		_ = f.watcher.Remove(d) // gone already, perhaps
	}
	f.watched = slices.Clone(dirs)
	for _, p := range f.engine.cfg.Paths {
		f.watched = append(f.watched, filepath.Dir(filepath.Clean(p)))
	}
	slices.Sort(f.watched)
	f.watched = slices.Compact(f.watched)
	for _, d := range f.watched {
		_ = f.watcher.Add(d) // missing: the directory above says when it comes, or the poll
	}
}
