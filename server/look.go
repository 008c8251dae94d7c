package server

import (
	"errors"

	"muster/internal/keyfile"
	"muster/internal/wire"
)

// view is what a look at the disk found.
type view struct {
	mode     Mode
	reason   string
	identity wire.Identity
	conf     *conf        // nil if there is none that is usable
	token    *token       // nil likewise
	creds    *credentials // nil likewise

	says    ProvisionWord // of server.conf, usable or not
	damaged bool          // there is a server.conf, and it cannot be used
	over    bool          // the certificate is over, and nothing else is wrong with it
	foreign error         // key and certificate are another node's
	files   string        // fingerprints of all that was read, from before it was
}

// look reads everything that decides the mode, and decides. The error wraps
// [ErrMode], beside a view, or is about the identity, and then there is none.
func (s *Server) look() (*view, error) {
	v := &view{files: s.setFingerprints()}
	var sit Situation
	v.conf, sit.Provision, sit.Conf = readConf(s.at.conf)
	sit.Conf = oneLine(sit.Conf)
	if cannotRead(sit.Conf) {
		sit.Unread = sit.Conf
	}
	v.says, v.damaged = sit.Provision, errors.Is(sit.Conf, ErrUnusable)
	v.token, sit.Token = readToken(s.tokenFiles(), s.build)
	sit.Token = oneLine(sit.Token)
	sit.ByDefault = v.token != nil && v.token.byDefault
	var err error
	if v.identity, err = s.nodeIdentity(v.conf); err != nil {
		return nil, err
	}
	v.creds, sit.Credentials = readCredentials(s.at, v.identity, s.nowFor)
	if errors.Is(sit.Credentials, keyfile.ErrExposed) {
		sit.Exposed = sit.Credentials
	}
	if sit.Credentials != nil {
		v.foreign = s.foreign(v.identity)
		sit.Foreign = v.foreign
	}
	v.over = errors.Is(sit.Credentials, errExpired)
	if sit.Credentials == nil && s.again != nil {
		sit.Credentials = s.again
		sit.Pending = exists(s.at.in(appliedFile)) && s.stays == nil
	}
	sit.Ordered = s.orders.doing(wire.VerbReprovision)
	v.mode, v.reason, err = sit.Decide()
	return v, err
}

// nodeIdentity returns the node's name: from Config, else server.conf, else the
// machine.
func (s *Server) nodeIdentity(c *conf) (wire.Identity, error) {
	switch {
	case s.cfg.Identity != "":
		return wire.ParseIdentity(s.cfg.Identity)
	case c != nil && c.identity != "":
		return c.identity, nil
	}
	return s.cfg.identity()
}
