package wire

import "time"

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
