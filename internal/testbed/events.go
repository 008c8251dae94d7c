package testbed

import (
	"encoding/json"
	"testing"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// CheckEvent returns why a CloudEvent in JSON is not as documented. Package
// eventcheck sets it before any test runs; nil, where that is not imported,
// leaves events unchecked.
var CheckEvent func([]byte) error

// checkEmitted fails the test for an event that is not as documented.
func checkEmitted(t testing.TB, e events.Event) {
	if CheckEvent == nil {
		return
	}
	data, err := json.Marshal(e)
	var b []byte
	if err == nil {
		b, err = json.Marshal(&events.Stored{SpecVersion: "1.0", ID: wire.NewID(), Source: "testbed", Type: e.Type, Subject: e.Node,
			Time: e.Time, DataContentType: "application/json", Data: data})
	}
	if err == nil {
		err = CheckEvent(b)
	}
	if err != nil {
		t.Errorf("emitted %s: %v", data, err)
	}
}
