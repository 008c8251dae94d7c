package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"muster/internal/wire"
)

// linkConf makes the configured server.conf a link to the one in the live
// directory, so that it switches with the set. Whatever server.conf says, it
// says the same before, during and after.
func (s *Server) linkConf(ctx context.Context) error {
	if s.confLinked() {
		if fi, err := os.Lstat(s.at.in(confName)); err == nil && fi.IsDir() {
			return s.setAside(ctx, s.at.in(confName))
		}
		return nil
	}
	fi, err := os.Stat(s.at.conf) // of what it links to, if it is another link
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = s.dropLiveConf()
	case err != nil:
		return err
	case fi.Mode().IsRegular() && fi.Size() <= maxConfBytes:
		err = s.adoptConf()
	default:
		if err = s.dropLiveConf(); err == nil {
			err = s.setAside(ctx, s.at.conf)
		}
	}
	if err != nil {
		return err
	}
	if err := s.syncNames(); err != nil { // the link leads there
		return err
	}
	s.step("conf adopted")
	temp, err := s.makeLink()
	if err != nil {
		return err
	}
	s.step("link made")
	if err := rename(temp, s.at.conf); err != nil {
		return err
	}
	s.step("conf linked")
	s.renamedIn(filepath.Dir(s.at.conf))
	return s.syncNames()
}

// makeLink makes the link beside server.conf, which is to be renamed over it.
func (s *Server) makeLink() (temp string, err error) {
	temp = filepath.Join(filepath.Dir(s.at.conf), "."+filepath.Base(s.at.conf)+".link")
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return temp, os.Symlink(s.linkTarget(), temp)
}

// checkConfMount refuses a server.conf that nothing can be renamed over.
func (s *Server) checkConfMount() error {
	if s.confLinked() || !mountedAt(s.at.conf) {
		return nil
	}
	return &cause{what: fmt.Errorf("%s is a mount point, which cannot become a link", s.at.conf),
		remedy: "mount the directory above it, or choose a --config that is not mounted"}
}

// tryLink reports why server.conf could not become a link, before any request asks for
// something to put there: a disk that is read-only, say, or that has no links.
func (s *Server) tryLink() error {
	if s.confLinked() {
		return nil
	}
	if err := s.checkConfMount(); err != nil {
		return err
	}
	temp, err := s.makeLink()
	if err == nil {
		err = os.Remove(temp)
	}
	if err != nil {
		return fmt.Errorf("make %s a link into %s: %w", s.at.conf, s.at.live, err)
	}
	return nil
}

// linkTarget is what the link says: a relative path where the two are close,
// so that an image can be looked at from outside.
func (s *Server) linkTarget() string {
	if filepath.Dir(s.at.conf) == s.at.parent {
		return filepath.Join(filepath.Base(s.at.live), confName)
	}
	return s.at.in(confName)
}

// confLinked reports whether the configured server.conf is the live one: by its
// path, or by a link to it.
func (s *Server) confLinked() bool {
	path := s.at.conf
	if to, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	dir, err := resolve(filepath.Dir(path))
	return err == nil && filepath.Join(dir, filepath.Base(path)) == s.at.in(confName)
}

// checkConf refuses a server.conf that is a link into another node's set: the link
// would be taken away from it.
func (s *Server) checkConf(id wire.Identity) error {
	to, err := os.Readlink(s.at.conf)
	if err != nil || s.confLinked() {
		return nil
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(s.at.conf), to)
	}
	b, err := readBounded(filepath.Join(filepath.Dir(to), certificateFile), maxPEMBytes)
	if err != nil {
		return nil // it is in no set
	}
	chain, err := parseCertificates(string(b))
	if err != nil {
		return nil
	}
	owner := ownerOf(chain[0], id)
	if owner == "" {
		return nil
	}
	return &cause{what: fmt.Errorf("%s is a link to the configuration of %s, and this node is %s", s.at.conf, owner, id),
		remedy: "give this node a configuration of its own (--config)"}
}

// adoptConf puts what server.conf holds into the live directory.
func (s *Server) adoptConf() error {
	b, err := readBounded(s.at.conf, maxConfBytes)
	if err != nil {
		return err
	}
	if err := s.makeLive(); err != nil {
		return err
	}
	// Written beside the stage's files and renamed, so that the live directory
	// never holds a temporary file.
	temp := s.at.inNext("adopted.conf")
	if err := writeFile(temp, b, 0o600); err != nil {
		return err
	}
	if err := rename(temp, s.at.in(confName)); err != nil {
		return err
	}
	return s.sync(s.at.live)
}

// dropLiveConf removes a server.conf in the live directory that the configured
// one is not: somebody removed the link, and with it the configuration.
func (s *Server) dropLiveConf() error {
	if !exists(s.at.live) {
		return nil
	}
	if err := os.Remove(s.at.in(confName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.sync(s.at.live)
}

func (s *Server) makeLive() error {
	err := os.Mkdir(s.at.live, 0o700)
	s.renamedIn(s.at.parent)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// setAside moves away what stands in the place of server.conf and is no file,
// such as a directory; its contents are not ours to remove.
func (s *Server) setAside(ctx context.Context, path string) error {
	for i := 1; i <= 100; i++ {
		to := fmt.Sprintf("%s.replaced.%d", path, i)
		if exists(to) {
			continue
		}
		if err := rename(path, to); err != nil {
			return err
		}
		s.cfg.Log.WarnContext(ctx, "what stood in the place of the configuration was set aside", "path", to)
		return nil
	}
	return fmt.Errorf("%s is not a file, and there are 100 set aside already", path)
}
