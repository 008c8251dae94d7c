package policies

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// pollInterval is short, since polling reads no file. Polling sees changes on network file systems and behind links;
// notifications do not.
const pollInterval = time.Second

// Run reloads the policy once its files have changed and then stayed the same for a second: a half-written policy may
// compile, without the denials at its end. A refused policy is logged once. Run returns nil when ctx is done.
func (e *Engine) Run(ctx context.Context) error {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	var before, done string // stamps at the last poll and at the last reload
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
		now := stamps(e.cfg.Paths)
		if now == before && now != done {
			done = now
			if err := e.follow(ctx); err != nil && !errors.Is(err, ErrInvalid) {
				done = "" // a file can become readable without a new stamp
			}
		}
		before = now
	}
}

// follow reloads the policy and logs the result, without repeating a failure.
func (e *Engine) follow(ctx context.Context) error {
	start, old, refused := time.Now(), e.Digest(), e.Refused()
	changed, err := e.reload(ctx)
	switch {
	case ctx.Err() != nil: // the process is stopping; the policy is not at fault
		return nil
	case err != nil && fmt.Sprint(err) != fmt.Sprint(refused):
		e.cfg.Log.ErrorContext(ctx, "policy not reloaded, the former policy stays in use", "policy", e.Digest(), "err",
			err)
	case err == nil && (changed || refused != nil): // after a failure the files may be the former ones again
		e.cfg.Log.InfoContext(ctx, "policy reloaded", "policy", e.Digest(), "before", old, "elapsed", time.Since(start))
	}
	return err
}

// stamps returns a text that changes with names, sizes or times of the files.
func stamps(paths []string) string {
	var b strings.Builder
	stamp := func(at string) error {
		info, err := os.Stat(at)
		if err == nil {
			fmt.Fprintf(&b, "%q %d %v %d\n", at, info.Size(), info.Mode(), info.ModTime().UnixNano())
		}
		return err
	}
	for _, p := range paths {
		err := stamp(p)
		if err == nil {
			err = walk(p, func(name string) error { return stamp(filepath.Join(p, name)) })
		}
		fmt.Fprintf(&b, "%q %v\n", p, err) // of a file, walk has an error
	}
	return b.String()
}
