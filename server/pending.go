package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"muster/internal/wire"
)

// pending is what the node has applied and is yet to confirm. It is switched
// with the set, as applied.json, and renamed when the confirmation is on
// record; an agent that dies in between leaves it to the next one.
type pending struct {
	Identity string `json:"identity"`
	Serial   string `json:"serial"`
	Digest   string `json:"digest"`
}

func (p pending) encode() ([]byte, error) {
	b, err := json.Marshal(p)
	return append(b, '\n'), err
}

// decodePending decodes an applied.json.
func decodePending(b []byte) (*pending, error) {
	var p pending
	if err := wire.DecodeStrict(b, &p); err != nil {
		return nil, err
	}
	if _, err := wire.ParseIdentity(p.Identity); err != nil {
		return nil, err
	}
	if p.Serial == "" || p.Digest == "" {
		return nil, errors.New("serial or digest missing")
	}
	return &p, nil
}

// readPending returns what is yet to be confirmed, or nil if there is nothing. The
// error, which names the file, means that it is not known any more.
func (s *Server) readPending() (*pending, error) { return s.readConfirmation(appliedFile) }

// readConfirmation is readPending of a file by its name.
func (s *Server) readConfirmation(name string) (*pending, error) {
	b, err := readBounded(s.at.in(name), 4<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := decodePending(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.at.in(name), err)
	}
	return p, nil
}

// passing tells what ends by itself, as other processes do, from what is wrong with a file.
func passing(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN}, func(e error) bool { return errors.Is(err, e) })
}

// askAnew replaces what cannot be read, or is no file at all, by an order to have the
// configuration decided once more, which brings another file: else the node would
// neither confirm nor renew for as long as it is there. Unlike a key it is not worth
// waiting for. Killed in between, the next agent does it again.
func (n *duty) askAnew(ctx context.Context, err error) error {
	if !n.orders.doing(wire.VerbReconfigure) {
		if err := n.accept(order{ID: wire.NewID(), Verb: wire.VerbReconfigure}); err != nil {
			return err
		}
	}
	if err := n.dropPending(); err != nil {
		return err
	}
	n.cfg.Log.WarnContext(ctx, "confirmation is damaged, the configuration is asked for once more", "node", n.identity, "err", err)
	return nil
}

// dropPending removes what is to be confirmed. It is not synced: a power failure that
// brings the file back costs one confirmation more, which is acknowledged like the first.
func (s *Server) dropPending() error {
	if err := os.RemoveAll(s.at.in(appliedFile)); err != nil {
		return err
	}
	s.step("confirmed")
	return nil
}
