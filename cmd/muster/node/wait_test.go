package node

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

// TestWhatEndsACommand hears events about a node in whatever order they are read:
// only what happened after the command ends it, and of that the last.
func TestWhatEndsACommand(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	refused := errors.New("refused")
	event := func(kind provisioner.EventType, ms int, data provisioner.Event) *provisioner.StoredEvent {
		raw, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		at := noon.Add(time.Duration(ms) * time.Millisecond)
		return &provisioner.StoredEvent{Type: kind, Subject: "web1", Time: at, RecordedTime: at, Data: raw}
	}
	commanded := func(ms int) *provisioner.StoredEvent {
		return event(provisioner.EventCommanded, ms, provisioner.Event{Command: "c1"})
	}
	provisioned := func(ms int) *provisioner.StoredEvent {
		return event(provisioner.EventProvisioned, ms, provisioner.Event{})
	}
	denied := func(ms int) *provisioner.StoredEvent {
		return event(provisioner.EventRefused, ms, provisioner.Event{Code: wire.CodeDenied})
	}
	// The node's own clock is a year behind.
	started := func(ms int) *provisioner.StoredEvent {
		e := event("io.muster.server.startup", ms, provisioner.Event{})
		e.Time = e.Time.AddDate(-1, 0, 0)
		return e
	}
	type events []*provisioner.StoredEvent
	for name, test := range map[string]struct {
		verb wire.Verb
		read events
		want []error // what is told; none: it is still waited for
	}{
		"done":                                   {wire.VerbReconfigure, events{commanded(10), provisioned(20)}, []error{nil}},
		"done, read before the command":          {wire.VerbReconfigure, events{provisioned(20), commanded(10)}, []error{nil}},
		"the end of the command before":          {wire.VerbReconfigure, events{provisioned(9), commanded(10)}, nil},
		"the same, read late":                    {wire.VerbReconfigure, events{commanded(10), provisioned(9)}, nil},
		"a refusal before the command":           {wire.VerbReprovision, events{denied(5), commanded(10)}, nil},
		"refused":                                {wire.VerbReprovision, events{commanded(10), denied(20)}, []error{refused}},
		"refused, then done, and read backwards": {wire.VerbReprovision, events{provisioned(30), denied(20), commanded(10)}, []error{nil}},
		"another's command":                      {wire.VerbReconfigure, events{event(provisioner.EventCommanded, 10, provisioner.Event{Command: "c2"}), provisioned(20)}, nil},
		"a start, by the broker's clock":         {wire.VerbRestart, events{commanded(10), started(20)}, []error{nil}},
		"a start before":                         {wire.VerbRestart, events{started(5), commanded(10)}, nil},
	} {
		a := &awaited{command: "c1", told: make(chan error, 1)}
		w := &watch{verb: test.verb, waiting: map[wire.Identity]*awaited{"web1": a}}
		for _, e := range test.read {
			w.hear(e)
		}
		var got []error
		select {
		case err := <-a.told:
			got = append(got, err)
		default:
		}
		if len(got) != len(test.want) || len(got) == 1 && (got[0] == nil) != (test.want[0] == nil) {
			t.Errorf("%s: told %v, want %v", name, got, test.want)
		}
	}
}
