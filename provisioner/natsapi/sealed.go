package natsapi

import (
	"bytes"
	"errors"
	"fmt"

	"muster/internal/seal"
	"muster/internal/wire"
)

var errBudget = errors.New("too many sealed messages from this address could not be opened")

// sealedPrefix begins every message of [seal.Session.Encode]. Looking for it saves a second decoding.
var sealedPrefix = fmt.Appendf(nil, `{"v":%d,"sealed":true,`, wire.Version)

// decode first opens a sealed message; then replies to c are sealed. Its errors wrap [seal.ErrOpen],
// [seal.ErrUnknownKey] or errBudget.
func decode[T any](s *Service, c *call, decoder func([]byte) (*T, error)) (*T, error) {
	if s.cfg.Opener == nil {
		return decoder(c.Data)
	}
	if !bytes.HasPrefix(c.Data, sealedPrefix) {
		if v, err := decoder(c.Data); !errors.Is(err, wire.ErrSealed) {
			return v, err
		}
	}
	message, err := s.open(c)
	if err != nil {
		return nil, err
	}
	return decoder(message)
}

// open charges the budget: opening costs as much as a signature check.
func (s *Service) open(c *call) ([]byte, error) {
	e, err := wire.Open(c.Data, wire.MaxMessageBytes)
	if err != nil {
		return nil, err
	}
	if !s.cfg.Budget.Charge(c.source.Address) {
		return nil, errBudget
	}
	purpose := seal.PurposeEnroll
	if s.isApplied(c.Msg) {
		purpose = seal.PurposeApplied
	}
	message, sealer, err := s.cfg.Opener.Open(purpose, e)
	if err != nil {
		return nil, err
	}
	c.sealer, c.session, c.source.Sealed = sealer, seal.SessionName(e.Encapsulated), true
	c.source.Proven = func() { s.refund(c) }
	return message, nil
}

func (s *Service) refund(c *call) {
	if c.sealer != nil {
		s.cfg.Budget.Refund(c.source.Address)
	}
}

// checkSession refuses a sealed request from another connection than its session's, such as a recorded one. Clients
// cannot choose the connection's user: the broker sets it to the session proven there.
func (s *Service) checkSession(c *call) error {
	if c.sealer != nil && c.session != c.user {
		return fmt.Errorf("the sealed request belongs to session %.60q, but came on the connection of %.60q",
			c.session, c.user)
	}
	return nil
}
