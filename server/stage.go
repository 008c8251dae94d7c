package server

import (
	"context"
	"crypto"
	"errors"
	"fmt"

	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/files"
	"muster/server/trust"
)

// A stage is the next set while it is being made: the key and the request that
// every attempt uses.
type stage struct {
	key crypto.Signer
	csr []byte
}

// openStage continues the stage on disk, or begins one with the key in force,
// by which a provisioner knows the node, or with a new one if there is none or
// fresh is set. Key and request are on disk, and stay there, before it returns:
// whatever happens to the process after a request was sent, the next one asks
// for the same.
//
// A stage for another identity is thrown away, key and all: it came with a
// copied disk, and two nodes must not share a key.
func (s *sets) openStage(ctx context.Context, id wire.Identity, fresh bool) (*stage, error) {
	held, err := s.keyInForce(id)
	if err != nil {
		return nil, err
	}
	if err := s.dir.Make(); err != nil { // removed while the agent runs
		return nil, adviseWritable(err)
	}
	if err := s.dir.Check(); err != nil {
		return nil, adviseOccupied(err)
	}
	st, err := s.staged(ctx, id)
	if err != nil {
		return nil, err
	}
	if st != nil && fresh && held != nil && trust.SamePublicKey(st.key.Public(), held.Public()) {
		st = nil // staged by an enrollment that was called off
	}
	switch {
	case st != nil && st.csr != nil:
		return st, s.dir.Sync() // an agent that was killed may have left it to this one
	case st != nil:
		return s.begin(st.key, id)
	case held != nil && !fresh:
		return s.begin(held, id)
	}
	key, err := trust.NewKey()
	if err != nil {
		return nil, err
	}
	return s.begin(key, id)
}

// begin puts a key and its request on disk: for the key in force, what it was
// certified with.
func (s *sets) begin(key crypto.Signer, id wire.Identity) (*stage, error) {
	csr, err := readRequest(s.dir.Path(csrFile), key, id)
	if err != nil {
		csr, err = trust.NewCSR(key, id)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	encoded, err := keyfile.Marshal(key, nil)
	if err != nil {
		return nil, err
	}
	err = s.dir.Begin(
		files.File{Name: keyFile, Data: encoded, Mode: 0o600},
		files.File{Name: csrFile, Data: csr, Mode: 0o600},
	)
	if err != nil {
		return nil, err
	}
	return &stage{key: key, csr: csr}, nil
}

// staged returns the stage on disk, nil if there is none for id that can be
// used, and without a request if that is damaged.
func (s *sets) staged(ctx context.Context, id wire.Identity) (*stage, error) {
	key, err := trust.ReadKey(s.dir.StagedPath(keyFile))
	switch {
	case errors.Is(err, keyfile.ErrExposed):
		return nil, err // a provisioner may know it already
	case cannotRead(err):
		return nil, unreadableKey(err, s.dir.StagedPath(""))
	case err != nil:
		return nil, nil
	}
	csr, err := readRequest(s.dir.StagedPath(csrFile), key, id)
	switch {
	case errors.Is(err, errOther):
		s.log.WarnContext(ctx, "staged key dropped, it is for another identity", "node", id)
		return nil, nil
	case err != nil:
		s.log.WarnContext(ctx, "staged request is damaged, another one is made for its key", "node", id, "err", err)
	}
	return &stage{key: key, csr: csr}, nil
}

// errOther means that a request is for another identity.
var errOther = errors.New("certificate request for another identity")

// readRequest reads a certificate request, which has to be id's and key's.
func readRequest(path string, key crypto.Signer, id wire.Identity) ([]byte, error) {
	csr, err := files.Read(path, wire.MaxCSRBytes)
	if err != nil {
		return nil, err
	}
	asked, err := trust.RequestedIdentity(csr, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if asked != id {
		return nil, errOther
	}
	return csr, nil
}

// keyInForce returns the key in force, or nil if there is none that can be used
// again: a certificate beside it for another machine means that the directory
// was copied. One that cannot be read now is an error: the name is its own, and
// another key would be told that it is taken.
func (s *sets) keyInForce(id wire.Identity) (crypto.Signer, error) {
	key, err := trust.ReadKey(s.dir.Path(keyFile))
	if cannotRead(err) {
		return nil, unreadableKey(err, s.dir.Path(keyFile))
	}
	if err != nil {
		return nil, nil
	}
	if owner, err := s.owner(id); err == nil && owner != "" {
		return nil, nil
	}
	return key, nil
}

func unreadableKey(err error, path string) error {
	return advice.New(err, "mend the disk; only if the file is lost for good remove "+path)
}

// renewing reports whether another key than the one in force is staged.
func (s *sets) renewing(held crypto.Signer) bool {
	key, err := trust.ReadKey(s.dir.StagedPath(keyFile))
	return err == nil && !trust.SamePublicKey(key.Public(), held.Public())
}
