package wire

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
)

// Subjects of protocol version 1. A node of the provisioning account may
// publish the first two and nothing else; a node of the fleet account is
// confined to the subjects that end in its own [Identity.SubjectToken].
const (
	// SubjectEnroll takes an enroll request: one request, one reply.
	SubjectEnroll = "muster.v1.enroll"

	// SubjectApplied takes the confirmation that a node has its certificate
	// and configuration on disk.
	SubjectApplied = "muster.v1.applied"

	// SubjectRenew takes a request for a new certificate over the mutual TLS
	// connection of the old one: fleet account only.
	SubjectRenew = "muster.v1.renew"

	// QueueProvisioners is the queue group in which provisioners share the
	// subjects above.
	QueueProvisioners = "provisioners"

	subjectEvent        = "muster.v1.event."
	subjectRegistration = "muster.v1.registration."
	subjectCommand      = "muster.v1.command."
)

// Wildcards over every node's subjects, for the side that listens.
const (
	AllNodeEvents   = subjectEvent + "*.*"
	AllRegistration = subjectRegistration + "*"
)

// EventTypes are the types of lifecycle events, each the last part of a subject.
// A node may publish no others: the store keeps every subject in memory.
var EventTypes = []string{"startup", "alive", "provisioned", "shutdown"}

// EventSubject is where the node publishes lifecycle events of one of the
// [EventTypes].
func EventSubject(id Identity, typ string) string {
	return subjectEvent + id.SubjectToken() + "." + typ
}

// RegistrationSubject is where the node publishes its registration data.
func RegistrationSubject(id Identity) string { return subjectRegistration + id.SubjectToken() }

// CommandSubject is where the node takes commands from provisioners.
func CommandSubject(id Identity) string { return subjectCommand + id.SubjectToken() }

// ConnectionNameChars is the length of the random CONNECT name to which a
// connection's inbox is bound: 22 base64url characters are 132 bits.
const ConnectionNameChars = 22

// ValidConnectionName reports whether s can name a connection: exactly
// [ConnectionNameChars] characters of the base64url alphabet.
func ValidConnectionName(s string) bool {
	return len(s) == ConnectionNameChars && validID(s)
}

// InboxPrefix is the only place where the connection named name may listen
// for replies, without the trailing dot.
func InboxPrefix(name string) string { return "_INBOX." + name }

// NewID returns 22 random base64url characters for a request, a connection or
// a boot instance; random reads never fail (crypto/rand, Go 1.24). The first is no
// dash: people write some of them on command lines, where that begins a flag.
func NewID() string {
	var b [17]byte
	for {
		_, _ = rand.Read(b[:])
		if id := base64.RawURLEncoding.EncodeToString(b[:])[:ConnectionNameChars]; id[0] != '-' {
			return id
		}
	}
}

// validID reports whether s is 1 to 64 characters of the base64url alphabet.
func validID(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
