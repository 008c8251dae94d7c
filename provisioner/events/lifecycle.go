package events

import (
	"encoding/json"
	"errors"
	"time"

	"muster/internal/wire"
)

// OfServer is what the types of nodes' own events begin with.
const OfServer = "io.muster.server."

// The events of nodes' lives, which they publish themselves over mutual TLS. All
// that they say is the node's word, but for which node it is.
const (
	ServerStartup     Type = OfServer + "startup"
	ServerAlive       Type = OfServer + "alive"
	ServerProvisioned Type = OfServer + "provisioned"
	ServerShutdown    Type = OfServer + "shutdown"
)

// Lifecycle is what a node says of its life.
type Lifecycle struct {
	Identity wire.Identity `json:"identity"` // of the session that it came over
	Version  string        `json:"version,omitempty"`
	Boot     string        `json:"boot,omitempty"`    // differs after each start of the agent
	Address  string        `json:"address,omitempty"` // that its broker sees, by what the node was told
	Mode     string        `json:"mode,omitempty"`
	Serial   string        `json:"serial,omitempty"`
	Expires  string        `json:"expires,omitempty"` // RFC 3339, by the certificate
}

// errLifecycle means that what a node has published is no event that we know.
var errLifecycle = errors.New("not a lifecycle event")

// CleanLifecycle returns what may be believed of an event that a node has
// published: it is from that node, and of the type that its subject ends in. Of
// the rest what is known is kept, cut to the length of an identity.
func CleanLifecycle(id wire.Identity, kind string, e *Stored) (*Stored, error) {
	t := Type(OfServer + kind)
	if MeaningOf(t) == nil || e.Time.IsZero() {
		return nil, errLifecycle
	}
	if y := e.Time.UTC().Year(); y < 0 || y > 9999 { // with its zone it was in range, and nobody could write it again
		return nil, errLifecycle
	}
	var reported Lifecycle
	if err := json.Unmarshal(e.Data, &reported); err != nil {
		return nil, errLifecycle
	}
	reported.Identity = id
	for _, s := range []*string{&reported.Version, &reported.Boot, &reported.Address, &reported.Mode, &reported.Serial, &reported.Expires} {
		*s = truncate(*s)
	}
	if _, err := time.Parse(time.RFC3339, reported.Expires); err != nil {
		reported.Expires = ""
	}
	data, err := json.Marshal(reported)
	if err != nil {
		return nil, err
	}
	return &Stored{SpecVersion: "1.0", ID: truncate(e.ID), Source: truncate(e.Source), Type: t, Subject: string(id), Time: e.Time.UTC(),
		DataContentType: "application/json", Data: data}, nil
}

// bounded bounds what a node says of itself.
func truncate(s string) string {
	if len(s) > wire.MaxIdentityBytes {
		s = s[:wire.MaxIdentityBytes]
	}
	return Scrub(s)
}
