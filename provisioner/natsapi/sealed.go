package natsapi

import (
	"bytes"
	"errors"
	"fmt"

	"muster/internal/seal"
	"muster/internal/wire"
)

// errBudget means that a source has had too much opened that did not open.
var errBudget = errors.New("too many sealed messages of this source did not open")

// sealedPrefix is how [seal.Session.Encode] begins. It only saves decoding an
// envelope twice: one that is spelled in another way is found out as well.
var sealedPrefix = fmt.Appendf(nil, `{"v":%d,"sealed":true,`, wire.Version)

// decode decodes the message of c, and opens it first if it is sealed. From
// then on the replies to c are sealed. Other errors than those of the decoder
// wrap [seal.ErrOpen], [seal.ErrUnknownKey] or errBudget.
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

// open opens a sealed message. It is the one place where that is done, and
// charged: it costs as much as a check of a signature, and anybody's bytes can
// have it. It is given back once the provisioner knows that what was in it is
// of somebody: garbage can be sealed as well as anything.
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
	c.source.Proven = func() { s.opened(c) }
	return message, nil
}

// opened gives back what opening c has cost, if it was opened.
func (s *Service) opened(c *call) {
	if c.sealer != nil {
		s.cfg.Budget.Refund(c.source.Address)
	}
}

// ofItsConnection reports why a sealed request is not of the connection that it
// came on. Whoever records one can send it again, since sealing takes no secret
// and neither does delivering; but only who has made its session can have made
// the request, and the broker reports as a connection's user the name of the
// session that has been proven there (see [seal.Opener.OpenToken]).
//
// The broker sets the user of connections without a session, so that nobody gets
// one by choosing it as the name of a user.
func (s *Service) ofItsConnection(c *call) error {
	if c.sealer != nil && c.session != c.user {
		return fmt.Errorf("sealed request of session %.60q came on the connection of %.60q", c.session, c.user)
	}
	return nil
}
