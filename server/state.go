package server

import (
	"errors"
	"fmt"
	"time"

	"muster/server/orders"

	"muster/internal/keyfile"
	"muster/internal/serverconf"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
	"muster/server/trust"
)

// Reasons why an intact certificate cannot be used.
var (
	// errDisowned means that the provisioner has no record of the certificate as this node's.
	errDisowned = errors.New("certificate is disowned by the provisioner")

	// errRefused means that brokers have refused the certificate for RefusedLimit.
	errRefused = errors.New("certificate is refused by the broker")
)

type state struct {
	cfg    Config
	sets   *sets
	clock  *clock
	orders *orders.Orders

	name          wire.Identity // in the last usable certificate; empty: none
	unusable      error         // why the certificate cannot be used; nil: no reason known
	unusableSince time.Time
	contact       contact
}

type contact struct {
	urls []string // the brokers that the rest is about
	srv  string

	reached   bool      // a broker has admitted the node
	unreached time.Time // time of the first failed attempt; zero: none failed since the last connection
	refused   time.Time // time since which every attempt was refused; zero: none
}

// An inspection is the state of the disk at one time. A pointer is nil if its subject is missing or unusable.
type inspection struct {
	Situation
	mode     Mode
	reason   string
	identity wire.Identity
	conf     *serverconf.Conf
	token    *token
	creds    *trust.Credentials

	identityInConf bool
	watched        watched // versions of all files read, taken before reading
}

// inspect reads everything that decides the mode, and decides. If the identity is unusable, it returns no inspection;
// any other error wraps [ErrMode].
func (s *state) inspect() (*inspection, error) {
	paths := []string{s.sets.dir.Path(keyFile), s.sets.dir.Path(certificateFile), s.sets.dir.Path(caFile)}
	v := &inspection{watched: s.watched(paths)}
	var says lenientConf
	v.conf, says, v.Conf = readConf(s.sets.conf)
	v.Provision, v.Conf = says.ProvisionSetting, link.OneLine(v.Conf)
	v.token, v.Token = readToken(s.tokenFiles())
	v.Token = link.OneLine(v.Token)
	v.ByDefault = v.token != nil && v.token.Default
	var err error
	if v.identity, err = s.identity(says.identities); err != nil {
		return nil, err
	}
	v.identityInConf = s.cfg.Identity == "" && len(says.identities) > 0
	v.creds, v.Credentials = s.sets.credentials(v.identity, s.clock.at)
	if v.Credentials == nil {
		s.name = v.identity
	}
	v.Blocked = s.blocked(v.identity, v.Situation)
	if v.Credentials == nil && s.unusable != nil {
		v.Credentials = s.unusable
		p, err := s.sets.pending()
		v.Pending = p != nil || err != nil
	}
	v.ProvisionOrdered = s.orders.IsOpen(wire.VerbReprovision)
	v.mode, v.reason, err = v.Decide()
	return v, err
}

func (s *state) blocked(id wire.Identity, sit Situation) error {
	if errors.Is(sit.Credentials, keyfile.ErrExposed) {
		return sit.Credentials
	}
	if sit.Credentials != nil {
		foreign := s.sets.foreign(id)
		if foreign != nil && sit.Conf != nil {
			return advice.New(fmt.Errorf("%w; %w", foreign, sit.Conf),
				"if server.conf set this node's identity before, restore that line; "+advice.Of(foreign))
		}
		if foreign != nil {
			return foreign
		}
	}
	if cannotRead(sit.Conf) {
		return advice.Errorf(remedyUnreadable, "server.conf cannot be read: %w", sit.Conf)
	}
	return nil
}

// identity returns the name from Config, else from server.conf, even a damaged one, else the host name. Host names can
// change while an agent runs (DHCP, first boot), so a node with a certificate keeps the name in it.
func (s *state) identity(names []string) (wire.Identity, error) {
	if s.cfg.Identity != "" {
		return wire.ParseName(s.cfg.Identity)
	}
	if len(names) > 0 {
		id, err := wire.ParseName(names[0])
		if len(names) > 1 {
			err = fmt.Errorf("is %.80q and %.80q", names[0], names[1])
		}
		if err == nil {
			return id, nil
		}
		if owner, failed := s.sets.owner(""); failed == nil {
			return wire.ParseIdentity(owner) // a slip takes no machine out of its fleet; it is a fault of server.conf
		}
		return "", advice.Errorf("keep one correct line, or none to use the machine's host name",
			"%s: identity: %w", s.sets.conf, err)
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

func (s *state) tokenFiles() []string {
	if s.cfg.TokenFile != "" {
		return []string{s.cfg.TokenFile}
	}
	return DefaultTokenFiles
}

func (s *state) watched(more []string) watched {
	return watch(append(append(s.tokenFiles(), s.sets.conf), more...)...)
}

// mayEnroll reports whether the node may enroll again because of why. If so, the next inspection decides the same.
func (s *state) mayEnroll(why error) bool {
	before := s.unusable
	s.unusable = why
	if v, err := s.inspect(); err == nil && v.mode == ModeProvisioning {
		s.unusableSince = time.Now()
		return true
	}
	s.unusable = before
	return false
}

// retryCertificate reports whether to try a refused certificate again: after an outage brokers may admit it, while the
// token may have expired.
func (s *state) retryCertificate() bool {
	if s.unusable == nil || time.Since(s.unusableSince) < s.cfg.RefusedLimit {
		return false
	}
	s.unusable = nil
	return true
}
