package store

import (
	"context"
	"errors"
	"maps"
	"sync"
)

// losses are readings that found less than the stream counts. A disk may lose a message that the server still counts,
// and then the [Watermark] shows nothing. mu guards found.
type losses struct {
	mu    sync.Mutex
	found map[string]func(context.Context) error
}

// add has check repeat a reading until it returns nil.
func (l *losses) add(what string, again func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found[what] = again
}

// check returns the losses that still stand, each wrapping [ErrDamaged].
func (l *losses) check(ctx context.Context) error {
	l.mu.Lock()
	found := maps.Clone(l.found)
	l.mu.Unlock()
	var errs []error
	for what, again := range found {
		err := again(ctx)
		if errors.Is(err, ErrDamaged) {
			errs = append(errs, err)
		}
		if err == nil {
			l.mu.Lock()
			delete(l.found, what)
			l.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}
