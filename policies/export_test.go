package policies

import "github.com/fsnotify/fsnotify"

// Unwatched has the system give e no watcher, for the reason err.
func (e *Engine) Unwatched(err error) {
	e.newWatcher = func() (*fsnotify.Watcher, error) { return nil, err }
}

// SamePolicy reports whether two engines share one compiled policy.
func SamePolicy(a, b *Engine) bool { return a.current.Load() == b.current.Load() }

// Whole returns an engine with the policy of e that gives it the whole input, for
// tests that compare.
func (e *Engine) Whole() *Engine {
	p := *e.current.Load()
	p.input = everything
	whole := &Engine{cfg: e.cfg}
	whole.current.Store(&p)
	return whole
}
