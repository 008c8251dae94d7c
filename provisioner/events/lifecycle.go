package events

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"muster/internal/wire"
)

// OfServer is the prefix of types of events that nodes send.
const OfServer = "io.muster.server."

// Events that nodes send. Only the node's identity is proven.
const (
	ServerStartup     Type = OfServer + "startup"
	ServerAlive       Type = OfServer + "alive"
	ServerProvisioned Type = OfServer + "provisioned"
	ServerShutdown    Type = OfServer + "shutdown"
)

var errLifecycle = errors.New("not a lifecycle event")

// CleanLifecycle copies the known members of an event that a node sent. It shortens long texts and sets the identity to
// id.
func CleanLifecycle(id wire.Identity, kind string, e *Stored) (*Stored, error) {
	t := Type(OfServer + kind)
	if MeaningOf(t) == nil || e.Time.IsZero() {
		return nil, errLifecycle
	}
	if y := e.Time.UTC().Year(); y < 0 || y > 9999 { // JSON allows the years 0 to 9999
		return nil, errLifecycle
	}
	var reported wire.Lifecycle
	if err := json.Unmarshal(e.Data, &reported); err != nil {
		return nil, errLifecycle
	}
	reported.Identity = id
	for _, s := range []*string{&reported.Version, &reported.Boot, &reported.Address, &reported.Mode, &reported.Serial,
		&reported.Expires} {
		*s = truncate(*s)
	}
	reported.Fault = FaultText(reported.Fault)
	if _, err := time.Parse(time.RFC3339, reported.Expires); err != nil {
		reported.Expires = ""
	}
	data, err := json.Marshal(reported)
	if err != nil {
		return nil, err
	}
	return &Stored{
		SpecVersion:     "1.0",
		ID:              truncate(e.ID),
		Source:          truncate(e.Source),
		Type:            t,
		Subject:         string(id),
		Time:            e.Time.UTC(),
		DataContentType: "application/json",
		Data:            data,
	}, nil
}

// FaultText bounds a node's report of what keeps it from renewing to 512 bytes.
func FaultText(s string) string { return Scrub(strings.ToValidUTF8(Cut(s, 512), "")) }

func truncate(s string) string {
	if len(s) > wire.MaxIdentityBytes {
		s = s[:wire.MaxIdentityBytes]
	}
	return Scrub(s)
}
