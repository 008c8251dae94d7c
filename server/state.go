package server

import (
	"errors"
	"fmt"
	"time"

	"muster/server/orders"

	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
	"muster/server/trust"
)

// Why a certificate that is in good order on disk is of no use.
var (
	// errDisowned means that the provisioner does not know the certificate, or
	// not as this node's.
	errDisowned = errors.New("certificate is disowned by the provisioner")

	// errRefused means that brokers have refused the certificate for long.
	errRefused = errors.New("certificate is refused by the broker")
)

// state is what the node's mode follows from: its files, the orders that it was
// given, and what it has heard of its certificate.
type state struct {
	cfg    Config
	sets   *sets
	clock  *clock
	orders *orders.Orders

	name    wire.Identity // in the certificate that was last found usable; empty: none was
	doubt   error         // why the certificate is of no use; nil: it may be
	doubted time.Time     // when doubt was set
	contact contact
}

// contact is what became of the connections with the set in force.
type contact struct {
	reached   bool      // a broker has taken the node
	unreached time.Time // since when no broker was reached; zero: one was
	refused   time.Time // since when each attempt ended with the certificate refused
}

// A view is what a look at the disk found.
type view struct {
	Situation
	mode     Mode
	reason   string
	identity wire.Identity
	conf     *conf              // nil if there is none that is usable
	token    *token             // nil likewise
	creds    *trust.Credentials // nil likewise

	named   bool    // its name is that in server.conf, usable or not
	watched watched // all that was read, from before it was
}

// look reads everything that decides the mode, and decides. The error wraps
// [ErrMode], beside a view, or is about the identity, and then there is none.
func (s *state) look() (*view, error) {
	paths := []string{s.sets.dir.Path(keyFile), s.sets.dir.Path(certificateFile), s.sets.dir.Path(caFile)}
	v := &view{watched: s.watched(paths)}
	var says words
	v.conf, says, v.Conf = readConf(s.sets.conf)
	v.Provision, v.Conf = says.ProvisionWord, link.OneLine(v.Conf)
	v.token, v.Token = readToken(s.tokenFiles())
	v.Token = link.OneLine(v.Token)
	v.ByDefault = v.token != nil && v.token.Default
	var err error
	if v.identity, err = s.identity(says.names); err != nil {
		return nil, err
	}
	v.named = s.cfg.Identity == "" && len(says.names) > 0
	v.creds, v.Credentials = s.sets.credentials(v.identity, s.clock.at)
	if v.Credentials == nil {
		s.name = v.identity
	}
	v.Blocked = s.blocked(v.identity, v.Situation)
	if v.Credentials == nil && s.doubt != nil {
		v.Credentials = s.doubt
		p, err := s.sets.pending()
		v.Pending = p != nil || err != nil
	}
	v.Ordered = s.orders.Doing(wire.VerbReprovision)
	v.mode, v.reason, err = v.Decide()
	return v, err
}

// blocked returns [Situation].Blocked.
func (s *state) blocked(id wire.Identity, sit Situation) error {
	if errors.Is(sit.Credentials, keyfile.ErrExposed) {
		return sit.Credentials
	}
	if sit.Credentials != nil {
		foreign := s.sets.foreign(id)
		if foreign != nil && sit.Conf != nil {
			return advice.New(fmt.Errorf("%w; %w", foreign, sit.Conf),
				"if server.conf named this node before, put that back; "+advice.Of(foreign))
		}
		if foreign != nil {
			return foreign
		}
	}
	if cannotRead(sit.Conf) {
		return advice.Errorf("let the agent read the file: check its owner and mode, and the disk",
			"what server.conf says is not known: %w", sit.Conf)
	}
	return nil
}

// identity returns the node's name: from Config, else server.conf, else the
// machine. In a server.conf that cannot be used it counts as well: by the
// machine's name the node would enroll as another one.
//
// What the machine is called may change while the agent runs: networks give
// names, and so do first boots. A node with a certificate keeps the name in it.
func (s *state) identity(names []string) (wire.Identity, error) {
	switch {
	case s.cfg.Identity != "":
		return wire.ParseIdentity(s.cfg.Identity)
	case len(names) > 1:
		return "", advice.Errorf("leave one of them there", "%s: identity is %.80q and %.80q", s.sets.conf, names[0],
			names[1])
	case len(names) == 1:
		id, err := wire.ParseIdentity(names[0])
		if err != nil {
			return "", advice.Errorf("correct it, or remove the line, and the node has the machine's name",
				"%s: identity: %w", s.sets.conf, err)
		}
		return id, nil
	}
	if s.name != "" {
		if owner, err := s.sets.owner(s.name); err == nil && owner == "" {
			return s.name, nil
		}
	}
	name, err := s.cfg.hooks.machine()
	if err != nil {
		return "", fmt.Errorf("host name: %w", err)
	}
	return machineIdentity(name)
}

// tokenFiles are the paths that may hold the token, in order.
func (s *state) tokenFiles() []string {
	if s.cfg.TokenFile != "" {
		return []string{s.cfg.TokenFile}
	}
	return defaultTokenFiles
}

// watched fingerprints token, server.conf and more files.
func (s *state) watched(more []string) watched {
	return watch(append(append(s.tokenFiles(), s.sets.conf), more...)...)
}

// mayEnroll reports whether the node may enroll again because of why; if so,
// the next look leads to provisioning mode.
func (s *state) mayEnroll(why error) bool {
	before := s.doubt
	s.doubt = why
	if v, err := s.look(); err == nil && v.mode == ModeProvisioning {
		s.doubted = time.Now()
		return true
	}
	s.doubt = before
	return false
}

// forgetDoubt reports whether a doubt about the certificate is so old that the certificate is to be tried again: brokers
// may take it, as after an outage, and the token may not be good any more.
func (s *state) forgetDoubt() bool {
	if s.doubt == nil || time.Since(s.doubted) < s.cfg.RefusedLimit {
		return false
	}
	s.doubt = nil
	return true
}
