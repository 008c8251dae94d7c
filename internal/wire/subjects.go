package wire

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
)

// Subjects of version 1. The provisioning account may publish only enroll requests and confirmations. A node in the
// fleet account may use confirmations, renewals and subjects with its [Identity.SubjectToken].
const (
	// SubjectEnroll is for enroll requests.
	SubjectEnroll = "muster.v1.enroll"

	// SubjectApplied is for confirmations.
	SubjectApplied = "muster.v1.applied"

	// SubjectRenew is for renewals.
	SubjectRenew = "muster.v1.renew"

	// QueueProvisioners is the queue group for the subjects above.
	QueueProvisioners = "provisioners"

	subjectEvent        = "muster.v1.event."
	subjectRegistration = "muster.v1.registration."
	subjectCommand      = "muster.v1.command."
)

// Wildcards for subscribers.
const (
	AllNodeEvents   = subjectEvent + "*.*"
	AllRegistration = subjectRegistration + "*"
)

// EventTypes are last tokens of event subjects. Nodes may not send other types, because the store keeps every
// subject in memory.
var EventTypes = []string{"startup", "alive", "provisioned", "shutdown"}

// EventSubject returns the subject for a node's lifecycle events of a type.
func EventSubject(id Identity, typ string) string {
	return subjectEvent + id.SubjectToken() + "." + typ
}

// RegistrationSubject returns the subject for a node's registration data.
func RegistrationSubject(id Identity) string { return subjectRegistration + id.SubjectToken() }

// CommandSubject returns the subject on which a node receives commands.
func CommandSubject(id Identity) string { return subjectCommand + id.SubjectToken() }

// ConnectionNameChars is the length of a CONNECT name: 132 random bits.
const ConnectionNameChars = 22

// ValidConnectionName checks length and alphabet.
func ValidConnectionName(s string) bool {
	return len(s) == ConnectionNameChars && validID(s)
}

// InboxPrefix returns the prefix of a connection's only inboxes, without the trailing dot.
func InboxPrefix(name string) string { return "_INBOX." + name }

// NewID returns 22 random base64url characters. The first is never a dash, which would begin a flag on a command
// line.
func NewID() string {
	var b [17]byte
	for {
		_, _ = rand.Read(b[:])
		if id := base64.RawURLEncoding.EncodeToString(b[:])[:ConnectionNameChars]; id[0] != '-' {
			return id
		}
	}
}

func validID(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
