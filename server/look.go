package server

import (
	"errors"
	"fmt"

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
	named   bool          // its name is that in server.conf, usable or not
	renamed error         // the name is the one that it had, and the next agent will not find it; nil: it will
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
	var says words
	v.conf, says, sit.Conf = readConf(s.at.conf)
	sit.Provision = says.ProvisionWord
	sit.Conf = oneLine(sit.Conf)
	if cannotRead(sit.Conf) {
		sit.Unread = sit.Conf
	}
	v.says, v.damaged = sit.Provision, errors.Is(sit.Conf, ErrUnusable)
	v.token, sit.Token = readToken(s.tokenFiles(), s.build)
	sit.Token = oneLine(sit.Token)
	sit.ByDefault = v.token != nil && v.token.byDefault
	var err error
	if v.identity, v.renamed, err = s.nodeIdentity(says.names); err != nil {
		return nil, err
	}
	v.named = s.cfg.Identity == "" && len(says.names) > 0
	v.creds, sit.Credentials = readCredentials(s.at, v.identity, s.nowFor)
	if sit.Credentials == nil {
		s.name = v.identity
	}
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
// machine. In a server.conf that cannot be used it counts as well: by the machine's name the
// node would enroll as another one.
//
// What the machine is called may change while the agent runs: networks give names, and so
// do first boots. Who has a certificate works on under the name in it, and renamed says
// that the next agent would not; a directory that was removed is nobody's any more.
func (s *Server) nodeIdentity(names []string) (id wire.Identity, renamed, err error) {
	switch {
	case s.cfg.Identity != "":
		id, err = wire.ParseIdentity(s.cfg.Identity)
		return id, nil, err
	case len(names) > 0:
		id, err = s.parseNames(names)
		return id, nil, err
	}
	id, err = s.cfg.identity()
	if s.name == "" || err == nil && id == s.name || !s.holds(s.name) {
		return id, nil, err
	}
	if err == nil {
		err = fmt.Errorf("this machine is called %s", id)
	}
	return s.name, &cause{what: fmt.Errorf("%w, and works on as %s", err, s.name),
		remedy: fmt.Sprintf("set identity = %s in server.conf, or name the machine so: the next agent will not start", s.name)}, nil
}

// parseNames returns the name that a server.conf gives to the node.
func (s *Server) parseNames(names []string) (wire.Identity, error) {
	if len(names) > 1 {
		return "", &cause{what: fmt.Errorf("%s: identity is %.80q and %.80q", s.at.conf, names[0], names[1]), remedy: "leave one of them there"}
	}
	id, err := wire.ParseIdentity(names[0])
	if err != nil {
		return "", &cause{what: fmt.Errorf("%s: identity: %w", s.at.conf, err), remedy: "correct it, or remove the line, and the node has the machine's name"}
	}
	return id, nil
}
