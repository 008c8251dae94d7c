package server

import (
	"errors"
	"fmt"
	"io/fs"

	"muster/server/advice"
)

// A Mode is what the agent does.
type Mode int

// The modes.
const (
	// ModeProvisioning: enroll with the token until there is a certificate
	// and a configuration.
	ModeProvisioning Mode = iota + 1

	// ModeNormal: keep a mutually authenticated connection to the fleet.
	ModeNormal
)

// String returns the mode's name in logs and events.
func (m Mode) String() string {
	switch m {
	case ModeProvisioning:
		return "provisioning"
	case ModeNormal:
		return "normal"
	}
	return "none"
}

// ErrMode means that what is on the node's disk allows neither mode. The text
// around it says what is missing; an operator has to mend it.
var ErrMode = errors.New("neither provisioning nor normal mode is possible")

// A Situation is what a node finds on its disk when it chooses its mode. The
// errors are nil where the thing is there and can be used; their text names
// the file.
type Situation struct {
	Conf      error         // about server.conf
	Provision ProvisionWord // what it says, usable or not
	Token     error         // about the token: readable, and a token; nothing is verified
	ByDefault bool          // the token's chpd

	// Credentials is about key, certificate and authority together. An expired
	// certificate, another machine's, or one that a provisioner has disowned
	// cannot be used.
	Credentials error

	// Pending: the set on disk was never confirmed, so the enrollment that
	// brought it is not over. If a provisioner then disowns the certificate
	// (Credentials is an error), the server.conf that came with it stops
	// nothing: it is not an operator's word.
	Pending bool

	// Ordered says that a command asks for provisioning. Where that is not
	// possible, the node stays what it is.
	Ordered bool

	// Blocked is what keeps the node from both modes until its operator has mended it: other
	// users may read its key, and closing the file may be all that is needed; key and certificate
	// are another node's, and provisioning would replace them; or server.conf cannot be read, and may
	// forbid to provision.
	Blocked error
}

// Decide chooses the mode, and says why in one clause. Choria's nodes decide
// the same way, with two differences: `provision = true` is obeyed whatever the
// token says (Choria's documentation says so, its code does not), and a token
// that cannot be used is an error at once where Choria carries on as an
// unconfigured server.
//
//	provision   configuration   certificate   token          mode
//	blocked                                   any            error
//	false       usable          usable        any            normal
//	false       otherwise                     any            error
//	any         usable          disowned      any            provisioning, if the set was never confirmed
//	true        any             any           any            provisioning
//	true        any             any           none           error
//	unset       usable          usable        usable         provisioning, if a command asks for it
//	unset       usable          usable        any            normal
//	unset       otherwise                     by default     provisioning
//	unset       otherwise                     not, or none   error
//
// The error wraps [ErrMode].
func (s Situation) Decide() (Mode, string, error) {
	says := s.Provision
	configured := s.Conf == nil && s.Credentials == nil
	switch {
	case says.Yes && says.No:
		return impossible("leave one of them in server.conf",
			"server.conf says both provision = true and provision = false (plugin.choria.server.provision is the same key)")
	case says.Other != "":
		return impossible("change it to one of these, or remove the line",
			"server.conf says provision = %.80q, want true or false", says.Other)
	case s.Blocked != nil:
		return impossible(advice.Of(s.Blocked), "%w", s.Blocked)
	case s.Pending && s.Conf == nil && s.Credentials != nil && s.Token == nil:
		return ModeProvisioning, s.Credentials.Error(), nil
	case says.No && configured:
		return ModeNormal, "configured", nil
	case says.No:
		return impossible(remedyAllow+", or put back what is missing", "server.conf says provision = false, but %w",
			s.lacking())
	case s.Ordered && s.Token == nil:
		return ModeProvisioning, "a command asks for it", nil
	case says.Yes && s.Token != nil:
		return impossible(tokenRemedy(s.Token), "server.conf says provision = true, but %w", s.Token)
	case says.Yes:
		return ModeProvisioning, "server.conf says provision = true", nil
	case configured:
		return ModeNormal, "configured", nil
	case errors.Is(s.Token, ErrMissing):
		return impossible(tokenRemedy(s.Token)+", or a configuration and a certificate",
			"%w, and there is no token (%w)", s.lacking(), s.Token)
	case s.Token != nil:
		return impossible(tokenRemedy(s.Token), "%w, and the token cannot be used: %w", s.lacking(), s.Token)
	case s.ByDefault:
		return ModeProvisioning, s.lacking().Error(), nil
	}
	return impossible("set provision = true in server.conf, or sign a token with --default",
		"%w, and the token does not provision by default", s.lacking())
}

// What to do where the node has to enroll again: with `provision = false` in
// server.conf, and without.
const (
	remedyAllow  = "remove provision = false from server.conf, or change it to provision = true, and the node enrolls"
	remedyEnroll = "let the node enroll again (provision = true in server.conf)"
)

// impossible returns what Decide does if there is no mode.
func impossible(remedy, format string, args ...any) (Mode, string, error) {
	return 0, "", advice.Errorf(remedy, "%w: %w", ErrMode, fmt.Errorf(format, args...))
}

// tokenRemedy is what to do about a token that is not there, cannot be read, or is none:
// one that cannot be read may be good.
func tokenRemedy(err error) string {
	var unread *fs.PathError
	switch {
	case errors.Is(err, ErrMissing):
		return "put a provisioning token there, see `muster jwt`"
	case errors.As(err, &unread):
		return "let the agent read the file: check its owner and mode, and the disk"
	}
	return "replace the file by a provisioning token, see `muster jwt`"
}

// lacking says what keeps the node from normal mode.
func (s Situation) lacking() error {
	if s.Conf != nil {
		return s.Conf
	}
	return s.Credentials
}
