package wire

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"time"
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

// requestInfoHeader is set by the broker over the client's. Repeated or malformed headers can trick nats-server 2.15.2
// and nats.go. So it is trusted only if it is the only header; nodes send none.
const requestInfoHeader = "Nats-Request-Info"

// ErrForged means that a message has other headers than the broker's: a client's header may imitate it.
var ErrForged = errors.New("the request has other headers than the broker's " + requestInfoHeader)

// A Sender is the connection of a message according to the broker, the used part of server.ClientInfo of nats-server.
type Sender struct {
	Host    string `json:"host"`   // address without a port; "" if unknown
	Server  string `json:"server"` // name of the client's server
	Account string `json:"acc"`    // "" for an account of the provisioners
	User    string `json:"user"`   // as the broker's gate set it
}

// SenderOf reads a message's headers, of so many bytes. The error is [ErrForged].
func SenderOf(header map[string][]string, bytes int) (Sender, error) {
	var s Sender
	if bytes == 0 {
		return s, nil // from an account of our own
	}
	said := header[requestInfoHeader]
	if len(header) != 1 || len(said) != 1 ||
		bytes != len("NATS/1.0\r\n"+requestInfoHeader+": "+"\r\n\r\n")+len(said[0]) {
		return s, ErrForged
	}
	_ = DecodeKnown([]byte(said[0]), &s) // unreadable is empty: an unknown sender
	return s, nil
}

const siteSeparator = "@"

// ServerName returns a broker's NATS name, from which provisioners learn the site of its nodes.
func ServerName(name, site string) string { return name + siteSeparator + site }

// SiteOfServer returns the site in a broker's NATS name, or "".
func SiteOfServer(name string) string {
	_, site, _ := strings.Cut(name, siteSeparator)
	return site
}

// A CloudEvent is an event as it is published: CloudEvents 1.0 as JSON.
type CloudEvent[D any] struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject,omitempty"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            D         `json:"data"`
}

// NewCloudEvent returns an event with a new ID.
func NewCloudEvent[D any](source, typ, subject string, at time.Time, data D) *CloudEvent[D] {
	return &CloudEvent[D]{"1.0", NewID(), source, typ, subject, at.UTC(), "application/json", data}
}

// Lifecycle is the data of an event that a node sends.
type Lifecycle struct {
	Identity Identity `json:"identity"` // proven by the session
	Version  string   `json:"version,omitempty"`
	Boot     string   `json:"boot,omitempty"`    // random, new at each start of the agent
	Address  string   `json:"address,omitempty"` // as its broker sees it
	Mode     string   `json:"mode,omitempty"`
	Serial   string   `json:"serial,omitempty"`
	Expires  string   `json:"expires,omitempty"` // RFC 3339, of the certificate
	Fault    string   `json:"fault,omitempty"`   // what keeps the node from renewing
}
