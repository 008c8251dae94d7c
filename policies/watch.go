package policies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// pollInterval is how often the files are looked at. Looking reads no file, and sees what notifications of the
// system do not: changes on network file systems and behind links.
const pollInterval = time.Second

// Run looks at the files of [Config].Paths every second until ctx is done and reloads the policy when they have
// changed and then rested for a second, as [Engine.Reload] does: half a policy may compile too, without the denials
// that come at its end. A policy that is refused is logged as an error, once, and the one in use stays. Run returns
// nil.
func (e *Engine) Run(ctx context.Context) error {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	var before, done, logged string // stamps of the last look and of the last reading, and the last failure
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
		now := stamps(e.cfg.Paths)
		if now == before && now != done {
			done = now
			err := e.follow(ctx, logged)
			if logged = ""; err != nil {
				logged = err.Error()
			}
			if err != nil && !errors.Is(err, ErrInvalid) {
				done = "" // a file that cannot be read may become readable without a trace
			}
		}
		before = now
	}
}

// follow reloads the policy and logs what came of it, other than the failure that was logged before.
func (e *Engine) follow(ctx context.Context, logged string) error {
	start, old := time.Now(), e.Digest()
	changed, err := e.reload(ctx)
	switch {
	case ctx.Err() != nil: // stopped in the middle, which is no fault of the policy
		return nil
	case err != nil && err.Error() != logged:
		e.cfg.Log.ErrorContext(ctx, "policy not reloaded, the one before stays in use", "policy", e.Digest(), "err", err)
	case err == nil && (changed || logged != ""): // after a failure, the files may be those in use again
		e.cfg.Log.InfoContext(ctx, "policy reloaded", "policy", e.Digest(), "before", old, "elapsed", time.Since(start))
	}
	return err
}

// stamps returns a text that changes when a file of the paths does: names, sizes and times of all of them.
func stamps(paths []string) string {
	var b strings.Builder
	stamp := func(name string, info fs.FileInfo) error {
		fmt.Fprintf(&b, "%q %d %v %d\n", name, info.Size(), info.Mode(), info.ModTime().UnixNano())
		return nil
	}
	for _, p := range paths {
		info, err := os.Stat(p)
		switch {
		case err == nil && info.IsDir():
			err = walk(p, stamp)
		case err == nil:
			err = stamp(p, info)
		}
		fmt.Fprintf(&b, "%q %v\n", p, err)
	}
	return b.String()
}
