package server

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"muster/internal/keyfile"
	"muster/internal/wire"
)

// Names in a directory that was made by stage. The first is what marks it.
const (
	markerFile = "staged"
	csrFile    = "request.csr"
)

const markerText = "This directory is made by muster-server. Beside the directory of the set in force it is the next set\n" +
	"being made; in its place, the set just switched to. Files in it are removed without asking.\n"

// A stage is the next set while it is being made. From the first attempt on it
// holds the key and the request that every attempt uses.
type stage struct {
	key crypto.Signer
	csr []byte
}

// openStage continues the stage on disk, or begins one. Key and request are on
// disk, and stay there, before it returns: whatever happens to the process
// after a request was sent, the next one asks for the same.
//
// A stage for another identity is thrown away, key and all: it came with a
// copied disk, and two nodes must not share a key. No certificate for it was
// ever in force here; a set that is in force is another matter, see foreign. A
// request that is damaged says nothing of the sort: another one is made for the
// key, by which a provisioner may know the node already.
func (s *Server) openStage(ctx context.Context, id wire.Identity) (*stage, error) {
	return s.stageFor(ctx, id, false)
}

// stageFor is openStage; where fresh is set, neither does it begin with the key
// in force nor continue a stage that did.
func (s *Server) stageFor(ctx context.Context, id wire.Identity, fresh bool) (*stage, error) {
	if err := s.recover(); err != nil {
		return nil, err
	}
	if err := s.checkMount(); err != nil {
		return nil, err
	}
	if err := s.checkConf(id); err != nil {
		return nil, err
	}
	if err := s.tryLink(); err != nil {
		return nil, err
	}
	key, err := readKey(s.at.inNext(keyFile))
	if errors.Is(err, keyfile.ErrExposed) {
		return nil, err // a provisioner may know it already: it is not for us to throw away
	}
	if cannotRead(err) {
		return nil, &cause{what: err, remedy: "mend the disk; only if the file is lost for good remove " + s.at.next}
	}
	if err != nil {
		key = nil // none, or none that can be used
	}
	held, err := s.keyInForce(id)
	if err != nil {
		return nil, err
	}
	if fresh && key != nil && held != nil && samePublicKey(key.Public(), held.Public()) {
		key = nil // staged by an enrollment that was called off
	}
	if key != nil {
		csr, asked, err := s.readRequest(key)
		switch {
		case err == nil && asked == id:
			if err := s.syncNames(); err != nil { // an agent that was killed may have left it to us
				return nil, err
			}
			return &stage{key: key, csr: csr}, nil
		case err == nil:
			s.cfg.Log.WarnContext(ctx, "staged key dropped, it is for another identity", "node", id)
			key = nil
		case !errors.Is(err, fs.ErrNotExist):
			s.cfg.Log.WarnContext(ctx, "staged request is damaged, another one is made for its key", "node", id, "err", err)
			if err := os.RemoveAll(s.at.inNext(csrFile)); err != nil {
				return nil, err
			}
		}
	}
	if key == nil {
		if err := os.RemoveAll(s.at.next); err != nil {
			return nil, err
		}
		if fresh {
			held = nil
		}
		if key, err = s.beginStage(held); err != nil {
			return nil, err
		}
	}
	csr, err := newCSR(key, id)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	if err := writeFile(s.at.inNext(csrFile), csr, 0o600); err != nil {
		return nil, err
	}
	s.step("csr written")
	s.renamedIn(s.at.next)
	s.renamedIn(s.at.parent)
	if err := s.syncNames(); err != nil {
		return nil, err
	}
	return &stage{key: key, csr: csr}, nil
}

// readRequest returns the staged request, which key has signed, and the identity that it
// is for. After any error the key is good still: the request can be made anew.
func (s *Server) readRequest(key crypto.Signer) (csr []byte, asked wire.Identity, err error) {
	path := s.at.inNext(csrFile)
	if csr, err = readBounded(path, wire.MaxCSRBytes); err != nil {
		return nil, "", err
	}
	if asked, err = requestedIdentity(csr, key); err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	return csr, asked, nil
}

// cannotRead reports whether a file may be there, whole, and could not be read now: a
// provisioner may know the key in it already.
func cannotRead(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist)
}

// beginStage makes the directory, its marker first, and a key in it: the one given, by
// which the provisioner knows the node again, or a new one if that is nil.
func (s *Server) beginStage(key crypto.Signer) (crypto.Signer, error) {
	if err := os.Mkdir(s.at.next, 0o700); err != nil {
		return nil, err
	}
	s.step("stage made")
	// Its name is what counts, and is synced with the directory.
	if err := writeUnsynced(s.at.inNext(markerFile), []byte(markerText), 0o600); err != nil {
		return nil, err
	}
	s.step("stage marked")
	if key == nil {
		var err error
		if key, err = newKey(); err != nil {
			return nil, err
		}
	}
	b, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	if err := writeFile(s.at.inNext(keyFile), b, 0o600); err != nil {
		return nil, err
	}
	s.step("key written")
	return key, nil
}

// keyInForce returns the key in the live directory, or nil if there is none
// that can be used again: a certificate beside it for another machine means
// that the directory was copied. One that cannot be read now is an error: the
// name is its own, and another key would be told that it is taken.
func (s *Server) keyInForce(id wire.Identity) (crypto.Signer, error) {
	key, err := readKey(s.at.in(keyFile))
	if cannotRead(err) {
		return nil, &cause{what: err, remedy: "mend the disk; only if the file is lost for good remove " + s.at.in(keyFile)}
	}
	if err != nil {
		return nil, nil
	}
	b, err := readBounded(s.at.in(certificateFile), maxPEMBytes)
	if err != nil {
		return key, nil
	}
	if chain, err := parseCertificates(string(b)); err == nil {
		if _, err := checkNames(chain[0], id); err != nil {
			return nil, nil
		}
	}
	return key, nil
}

// recover finishes or clears away what an agent that ended in the middle left
// behind. It leaves the live directory with one set, whole, and without a
// marker, and in the place of the next set either nothing or a marked stage.
// See apply.go for why that is always possible.
func (s *Server) recover() error {
	if !exists(s.at.live) && exists(s.at.old) {
		// Between the two renames of a system without exchange: go back.
		if err := rename(s.at.old, s.at.live); err != nil {
			return err
		}
		if err := s.sync(s.at.parent); err != nil {
			return err
		}
	}
	if exists(s.at.in(markerFile)) {
		return s.finishSwitch()
	}
	if exists(s.at.next) && !exists(s.at.inNext(markerFile)) {
		if err := os.RemoveAll(s.at.next); err != nil {
			return err
		}
	}
	return os.RemoveAll(s.at.old)
}

// checkMount refuses a live directory that cannot be renamed, or has something mounted in
// it, before any request asks for something to put there.
func (s *Server) checkMount() error {
	live, err := os.Stat(s.at.live)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	parent, err := os.Stat(s.at.parent)
	if err != nil {
		return err
	}
	if device(live) != device(parent) || mountedAt(s.at.live) {
		return mountError(s.at.live)
	}
	return s.checkMountedInside()
}

// checkMountedInside refuses what is mounted in the live directory: it can neither be
// carried nor be cleared away with the set before.
func (s *Server) checkMountedInside() error {
	n := 0
	return filepath.WalkDir(s.at.live, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // it may be gone, or is not for us to look into: carry says so
		case path != s.at.live && mountedAt(path):
			return mountedInside(path)
		case n >= maxForeign && e.IsDir():
			return fs.SkipDir // carry says so
		}
		n++
		return nil
	})
}

// tidyStage removes everything from the stage but marker, key and request:
// leftovers of an earlier attempt.
func (s *Server) tidyStage() error {
	entries, err := os.ReadDir(s.at.next)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch e.Name() {
		case markerFile, keyFile, csrFile:
			continue
		}
		if err := os.RemoveAll(s.at.inNext(e.Name())); err != nil {
			return err
		}
	}
	return nil
}
