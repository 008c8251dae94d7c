package events_test

import (
	"encoding/json"
	"testing"

	"muster/provisioner/events"
)

// TestLifecycleEventsCanBeEncodedAgain has a node send a time that is out of range in UTC.
func TestLifecycleEventsCanBeEncodedAgain(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00"} {
		var e events.Stored
		if err := json.Unmarshal([]byte(`{"specversion":"1.0","id":"1","source":"x","time":"`+at+`","data":{}}`),
			&e); err != nil {
			t.Fatal(err)
		}
		clean, err := events.CleanLifecycle("n1.example.net", "alive", &e)
		if err != nil {
			continue // refused
		}
		if _, err := json.Marshal(clean); err != nil {
			t.Errorf("event of %s: %v", at, err)
		}
	}
}
