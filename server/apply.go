package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// Applying a set, all or nothing.
//
// What belongs together - key, certificate, authority, configuration, policies,
// and what is yet to be confirmed - is one directory, and server.conf, where
// it is configured to be elsewhere, is a link into it. So one system call
// switches everything: renameat2 with RENAME_EXCHANGE swaps the directory in
// force (ssl, "live") with the next one (.ssl.next). Until that call everything
// reads as before, after it everything is new, and there is no in between. The
// steps before it make the next set, and are:
//
//  1. the stage is begun: marker, key, request (staging.go);
//  2. the other files of the set are written and synced;
//  3. server.conf becomes a link. The live directory first gets what
//     server.conf holds, which nothing reads there yet, or loses its own if
//     there is no server.conf; so the link shows what the file showed;
//  4. files in the live directory that are not ours are linked into the stage;
//  5. the exchange, and a sync of the directory above (names.go).
//
// The steps after it only clear away: (6) files that appeared in the old
// directory since 4 are linked over, the old directory is removed, and at last
// the marker.
//
// An agent that is killed anywhere leaves a state that the next one can tell
// by the marker alone. A stage gets its marker before anything else, and a
// switched directory loses it only after the old one is gone. So:
//
//   - a marker in live: the switch has happened, step 6 has not. Whatever is
//     in .ssl.next is the old set, or the rest of it: finish step 6.
//   - a marker in .ssl.next and none in live: a stage, somewhere in 1 to 4. Key
//     and request are used again, all else is made anew. That covers a set that
//     is complete, too: it costs one request, answered with the same
//     certificate, and there is one state less.
//   - neither: nothing is in hand. What is in .ssl.next was killed before its
//     marker was written, or is what a power failure brought back of an old
//     set; nothing that matters was ever only there.
//
// Only a live directory without a marker is ever staged from (openStage calls
// recover first), so an old set has none, and the first two cases exclude each
// other.
//
// Without RENAME_EXCHANGE (anything but Linux, some network file systems) step 5
// takes two renames, live to .ssl.old and .ssl.next to live. Between them there
// is no live directory: readers see nothing, which is neither set. An agent
// killed there goes back to the old one at its next start.
//
// Step 2 is where a disk gets full. Nothing is in force by then, so the set
// before it stays, and the node tries again.

// A set is what a node gets: everything that is switched at once, apart from
// the key, which is in the stage already.
type set struct {
	files   []setFile
	pending pending
}

type setFile struct {
	name string // slash separated, relative to the set's directory
	data []byte
	mode fs.FileMode
}

// errNoExchange means that two directories cannot be swapped in one step here.
var errNoExchange = errors.New("directories cannot be exchanged here")

// apply makes set the one in force. If it fails, the set before is in force
// still, and apply can be tried again; once the switch has happened it does not
// fail any more.
func (s *Server) apply(ctx context.Context, set *set) error {
	if err := s.writeStage(set); err != nil {
		return err
	}
	if err := s.linkConf(ctx); err != nil {
		return err
	}
	live, err := os.Stat(s.at.live)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		live = nil
	case err != nil:
		return err
	}
	if live != nil {
		if err := carry(s.at.live, s.at.next); err != nil {
			return err
		}
		s.step("carried")
		if err := s.takeOverStage(live); err != nil {
			return err
		}
		if err := s.sync(s.at.next); err != nil {
			return err
		}
	}
	s.renamedIn(s.at.parent)
	if err := s.switchSets(ctx, live != nil); err != nil {
		return err
	}
	s.stays = nil
	s.unreached, s.refused = time.Time{}, time.Time{} // what was so of the set before
	s.step("switched")
	if err := s.finishSwitch(); err != nil {
		// The new set is in force; recover tries the rest again.
		s.cfg.Log.ErrorContext(ctx, "old files not cleared away", "err", err, "remedy", remedyOf(explain(err, peer{})))
	}
	return nil
}

// takeOverStage gives the stage the owner and the mode of the live directory.
func (s *Server) takeOverStage(live fs.FileInfo) error {
	stage, err := os.Open(s.at.next)
	if err != nil {
		return err
	}
	return errors.Join(takeOver(stage, live), stage.Close())
}

// writeStage writes the set beside the staged key.
func (s *Server) writeStage(set *set) error {
	if err := s.tidyStage(); err != nil {
		return err
	}
	dirs := []string{}
	for _, f := range set.files {
		to := s.at.inNext(f.name)
		if dir := path.Dir(f.name); dir != "." && !exists(filepath.Dir(to)) {
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return err
			}
			dirs = append(dirs, filepath.Dir(to), filepath.Dir(filepath.Dir(to)))
		}
		if err := writeFile(to, f.data, f.mode); err != nil {
			return err
		}
		s.step("wrote " + f.name)
	}
	for _, dir := range append(dirs, s.at.next) {
		if err := s.sync(dir); err != nil {
			return err
		}
	}
	s.step("synced")
	return nil
}

// switchSets puts the stage in the place of the live directory.
func (s *Server) switchSets(ctx context.Context, hasLive bool) error {
	if !hasLive {
		return rename(s.at.next, s.at.live)
	}
	err := s.exchange(s.at.next, s.at.live)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, errNoExchange):
		return explainMount(err, s.at.live)
	}
	s.cfg.Log.DebugContext(ctx, "sets switched in two steps", "err", err)
	if err := os.RemoveAll(s.at.old); err != nil {
		return err
	}
	if err := rename(s.at.live, s.at.old); err != nil {
		return err
	}
	s.step("moved away")
	if err := rename(s.at.next, s.at.live); err != nil {
		return errors.Join(err, rename(s.at.old, s.at.live))
	}
	return nil
}

// finishSwitch clears away what a switch leaves. It can be repeated, so what a
// power failure undoes of it is done again; only the old set must be gone for
// good before the marker is, or it would be taken for a stage's leftovers.
func (s *Server) finishSwitch() error {
	if err := s.syncNames(); err != nil { // until then a power cut may bring the old set back, whole
		return err
	}
	removed := false
	for _, from := range []string{s.at.next, s.at.old} {
		if !exists(from) {
			continue
		}
		if err := carry(from, s.at.live); err != nil {
			return err
		}
		if err := s.sync(s.at.live); err != nil {
			return err
		}
		s.step("carried again")
		if err := os.RemoveAll(from); err != nil {
			return fmt.Errorf("remove the set before: %w", err)
		}
		s.step("old removed")
		removed = true
	}
	if removed {
		if err := s.sync(s.at.parent); err != nil {
			return err
		}
	}
	for _, name := range []string{csrFile, markerFile} {
		if err := os.Remove(s.at.in(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	s.step("marker removed")
	return nil
}
