package orders

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"muster/internal/wire"
	"muster/provisioner/trust"
)

// SessionSchema is the version of [Sessions].
const SessionSchema = 1

// MaxSessions is how many sessions one person can have; a new one ends the oldest.
const MaxSessions = 16

// Sessions are what one person has after signing in by OpenID Connect. One entry for each person bounds the log.
type Sessions struct {
	Schema int    `json:"schema"`
	Person string `json:"person"` // see [PersonOf]
	Issuer string `json:"issuer"` // URL

	Sessions []Session `json:"sessions"` // the oldest first
}

// A Session makes its holder an operator until it expires or is taken off the list.
type Session struct {
	ID   string `json:"id"` // shown to operators
	Name string `json:"name"`

	// SHA-256 in hex of the secret, and of the challenge of a command; not in lists.
	Hash string `json:"hash,omitempty"`

	Role    trust.OperatorRole `json:"role"`
	Sites   trust.Sites        `json:"sites,omitempty"`
	Agent   string             `json:"agent"` // "browser" or "command"
	Created time.Time          `json:"created"`
	Expires time.Time          `json:"expires"`
	Source  string             `json:"source"` // last address
	Used    time.Time          `json:"used"`   // when Source was noted
}

// PersonOf returns the key of a person's sessions, 32 hex digits.
func PersonOf(issuer, subject string) string { return wire.Sum([]byte(issuer + "\x00" + subject))[:32] }

var person = regexp.MustCompile(`^[0-9a-f]{32}$`)

// LogKey is the key in the log.
func (s *Sessions) LogKey() string { return s.Person }

// Check returns what is invalid.
func (s *Sessions) Check() error {
	if s.Schema != SessionSchema {
		return fmt.Errorf("sessions: schema %d, want %d", s.Schema, SessionSchema)
	}
	if !person.MatchString(s.Person) || len(s.Sessions) > MaxSessions {
		return fmt.Errorf("sessions: %d of person %.80q, want at most %d and 32 hex digits", len(s.Sessions), s.Person,
			MaxSessions)
	}
	for _, one := range s.Sessions {
		if err := errors.Join(one.Role.Check(), one.Sites.Check(one.Role)); err != nil {
			return fmt.Errorf("session %.80q: %w", one.ID, err)
		}
	}
	return nil
}
