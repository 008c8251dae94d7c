package server

import (
	"context"
	"crypto"
	"errors"
	"fmt"

	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/files"
	"muster/server/trust"
)

// A stage is the key and the certificate request of the next set. Every attempt uses the same ones.
type stage struct {
	key crypto.Signer
	csr []byte
}

// openStage continues the stage on disk, or begins one with the key in force. It uses a new key if there is none in
// force or fresh is set. Key and request are on disk before it returns, so that a restarted agent repeats the request.
//
// It discards a stage for another identity, which came with a copied disk: two nodes must not share a key.
func (s *sets) openStage(ctx context.Context, id wire.Identity, fresh bool) (*stage, error) {
	held, err := s.keyInForce(id)
	if err != nil {
		return nil, err
	}
	if err := s.dir.Make(); err != nil { // in case the directory was removed meanwhile
		return nil, err
	}
	if err := s.dir.Check(); err != nil {
		return nil, adviseOccupied(err)
	}
	st, err := s.staged(ctx, id)
	if err != nil {
		return nil, err
	}
	if st != nil && fresh && held != nil && wire.SamePublicKey(st.key.Public(), held.Public()) {
		st = nil // left by an interrupted enrollment
	}
	switch {
	case st != nil && st.csr != nil:
		return st, s.dir.Sync() // a killed agent may have left it unsynced
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

// begin reuses the request in force if it is for this key.
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

// staged returns nil if no stage is usable for id. A damaged request leaves csr nil.
func (s *sets) staged(ctx context.Context, id wire.Identity) (*stage, error) {
	key, err := trust.ReadKey(s.dir.StagedPath(keyFile))
	switch {
	case errors.Is(err, keyfile.ErrExposed):
		return nil, err // do not discard the key: a provisioner may know it
	case cannotRead(err):
		return nil, unreadableKey(err, s.dir.StagedPath(""))
	case err != nil:
		return nil, nil
	}
	csr, err := readRequest(s.dir.StagedPath(csrFile), key, id)
	switch {
	case errors.Is(err, errOther):
		s.log.WarnContext(ctx, "staged key discarded: it is for another identity", "node", id)
		return nil, nil
	case err != nil:
		s.log.WarnContext(ctx, "staged certificate request is damaged: the agent makes a new one for its key",
			"node", id, "err", err)
	}
	return &stage{key: key, csr: csr}, nil
}

var errOther = errors.New("certificate request for another identity")

func readRequest(path string, key crypto.Signer, id wire.Identity) ([]byte, error) {
	csr, err := inputfile.Read(path, inputfile.Configured, wire.MaxCSRBytes)
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

// keyInForce returns nil if there is no key to reuse. A certificate for another node shows that the directory was
// copied. An unreadable key is an error, since a node with another key cannot use its name.
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
	return advice.New(err, "repair the disk; only if the file cannot be recovered, remove "+path)
}

func (s *sets) renewing(held crypto.Signer) bool {
	key, err := trust.ReadKey(s.dir.StagedPath(keyFile))
	return err == nil && !wire.SamePublicKey(key.Public(), held.Public())
}
