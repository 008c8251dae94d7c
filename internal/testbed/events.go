package testbed

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// CheckEvent returns an error if a CloudEvent in JSON is not as docs/reference/events.md specifies for its type.
func CheckEvent(b []byte) error {
	var e events.Stored
	var data map[string]any
	err := wire.DecodeStrict(b, &e)
	if err == nil {
		err = json.Unmarshal(e.Data, &data)
	}
	m := events.MeaningOf(e.Type)
	switch {
	case err != nil:
		return err
	case m == nil || e.SpecVersion != "1.0" || e.ID == "" || e.Source == "" || e.Time.IsZero():
		return fmt.Errorf("event %q is not in events.Types, or a member is missing", e.Type)
	}
	for _, name := range m.Always {
		if data[name] == nil {
			return fmt.Errorf("%s without %s", e.Type, name)
		}
	}
	for _, member := range events.Members {
		value, ok := data[member.Name]
		delete(data, member.Name)
		if ok && (jsonType(value) != member.Type ||
			!slices.Contains(slices.Concat(m.Always, m.Sometimes), member.Name)) {
			return fmt.Errorf("%s with %s, %v", e.Type, member.Name, value)
		}
	}
	if len(data) > 0 {
		return fmt.Errorf("%s with undocumented members: %v", e.Type, data)
	}
	return nil
}

func jsonType(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		return "integer"
	}
	return ""
}

// checkEmitted fails the test for an event that differs from its documentation.
func checkEmitted(t testing.TB, e events.Event) {
	data, err := json.Marshal(e)
	var b []byte
	if err == nil {
		b, err = json.Marshal(&events.Stored{SpecVersion: "1.0", ID: wire.NewID(), Source: "testbed", Type: e.Type,
			Subject: e.Node,
			Time:    e.Time, DataContentType: "application/json", Data: data})
	}
	if err == nil {
		err = CheckEvent(b)
	}
	if err != nil {
		t.Errorf("emitted %s: %v", data, err)
	}
}
