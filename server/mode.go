package server

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"muster/server/advice"
)

// A Mode is what the agent does.
type Mode int

const (
	// ModeProvisioning enrolls with the token until the node has certificate and configuration.
	ModeProvisioning Mode = iota + 1

	// ModeNormal keeps a mutually authenticated connection to the fleet.
	ModeNormal
)

func (m Mode) String() string {
	switch m {
	case ModeProvisioning:
		return "provisioning"
	case ModeNormal:
		return "normal"
	}
	return "none"
}

// ErrMode means that the files on disk allow neither mode. Its remedy says what an operator has to repair.
var ErrMode = errors.New("neither provisioning nor normal mode is possible")

// A Situation is the state of the disk that decides the mode. A nil error means that its subject is usable.
type Situation struct {
	Conf      error
	Provision ProvisionSetting // from server.conf, even if Conf is an error
	Token     error            // about the token, which is parsed but not verified
	ByDefault bool             // the token's chpd

	// Credentials is about key, certificate and authority. A certificate is unusable if it is expired, another node's,
	// or disowned by a provisioner.
	Credentials error

	// Pending: the set on disk was never confirmed. If a provisioner disowns its certificate, its provision = false
	// does not prevent enrollment: no operator wrote it.
	Pending bool

	// ProvisionOrdered: a command asks for provisioning, if possible.
	ProvisionOrdered bool

	// Blocked prevents both modes: other users can read the key, another node owns key and certificate, or an
	// unreadable server.conf may forbid provisioning.
	Blocked error
}

// Decide chooses the mode and returns the reason as one clause. It decides as Choria's nodes do, with two differences.
// First, `provision = true` overrides the token, as Choria documents but does not implement. Second, an unusable token
// is an error at once, while Choria continues as an unconfigured server.
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
		return impossible("keep one of the two lines in server.conf",
			"server.conf says both provision = true and provision = false "+
				"(plugin.choria.server.provision is the same key)")
	case says.Invalid != "" && !configured:
		return impossible("change it to one of these, or remove the line",
			"server.conf says provision = %.80q, want true or false", says.Invalid)
	case s.Blocked != nil:
		return impossible(advice.Of(s.Blocked), "%w", s.Blocked)
	case s.Pending && s.Conf == nil && s.Credentials != nil && s.Token == nil:
		return ModeProvisioning, s.Credentials.Error(), nil
	case says.No && configured:
		return ModeNormal, "configured", nil
	case says.No:
		return impossible(remedyAllow+", or restore the missing files", "server.conf says provision = false, but %w",
			s.missing())
	case s.ProvisionOrdered && s.Token == nil:
		return ModeProvisioning, "a command asks for it", nil
	case says.Yes && s.Token != nil:
		return impossible(tokenRemedy(s.Token), "server.conf says provision = true, but %w", s.Token)
	case says.Yes:
		return ModeProvisioning, "server.conf says provision = true", nil
	case configured:
		return ModeNormal, "configured", nil
	case errors.Is(s.Token, ErrMissing):
		return impossible(tokenRemedy(s.Token)+", or a configuration and a certificate",
			"%w, and there is no token (%w)", s.missing(), s.Token)
	case s.Token != nil:
		return impossible(tokenRemedy(s.Token), "%w, and the token cannot be used: %w", s.missing(), s.Token)
	case s.ByDefault:
		return ModeProvisioning, s.missing().Error(), nil
	}
	return impossible("set provision = true in server.conf, or sign a token with --default",
		"%w, and the token does not provision by default", s.missing())
}

const (
	remedyAllow = "remove provision = false from server.conf, or change it to provision = true, " +
		"and the node enrolls"
	remedyEnroll = "let the node enroll again (provision = true in server.conf)"

	remedyUnreadable = "make the file readable for the agent: " +
		"check the disk, and owner and mode of file and directories"
)

func impossible(remedy, format string, args ...any) (Mode, string, error) {
	return 0, "", advice.Errorf(remedy, "%w: %w", ErrMode, fmt.Errorf(format, args...))
}

// tokenRemedy distinguishes missing, unreadable and malformed tokens: an unreadable one may be good.
func tokenRemedy(err error) string {
	var unread *fs.PathError
	switch {
	case errors.Is(err, ErrMissing):
		return "put a provisioning token there, see `muster jwt`"
	case errors.As(err, &unread):
		return remedyUnreadable
	}
	return "replace the file with a provisioning token, see `muster jwt`"
}

func (s Situation) missing() error {
	return cmp.Or(s.Conf, s.Credentials)
}
