package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Names on disk.
//
// A file that was synced is there after a power cut only if its name is, and those of
// all directories above it. The agent makes the directories that its files go to, and an
// agent that was killed may have made or renamed any without syncing it. So each begins
// by holding none of the names for safe, notes where it makes or renames something, and
// syncs these directories before a request asks for a certificate for the key in them,
// before the link in the place of server.conf leads to one, and before a confirmation
// says that a set is in force. Once they are synced that costs nothing.

// holders are the directories that hold the names on the way to a set and to
// server.conf, up to where their file systems are mounted: nobody makes those.
func (p places) holders() []string {
	list := []string{p.next, p.parent, filepath.Dir(p.conf)}
	for _, dir := range []string{p.parent, filepath.Dir(p.conf)} {
		for ; dir != filepath.Dir(dir) && sameDevice(dir, filepath.Dir(dir)); dir = filepath.Dir(dir) {
			list = append(list, filepath.Dir(dir))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// renamedIn notes that names in a directory are perhaps not on disk.
func (s *Server) renamedIn(dir string) {
	if !slices.Contains(s.unsynced, dir) {
		s.unsynced = append(s.unsynced, dir)
	}
}

// syncNames puts the names on disk that perhaps are not. After an error it can be tried
// again.
func (s *Server) syncNames() error {
	for len(s.unsynced) > 0 {
		dir := s.unsynced[0]
		err := s.sync(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist): // and so is no name in it
		case errors.Is(err, os.ErrPermission) && dir != s.at.parent && dir != filepath.Dir(s.at.conf):
			// One that the agent may not look into has not got a name from it.
		case err != nil:
			return err
		}
		s.unsynced = s.unsynced[1:]
	}
	return nil
}
