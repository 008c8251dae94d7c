package node

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// TestWhatEndsACommand hears events about a node in whatever order they are read:
// only what happened after the command ends it, and of that the last.
func TestWhatEndsACommand(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	refused := errors.New("refused")
	event := func(kind events.Type, ms int, data events.Event) *events.Stored {
		raw, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		at := noon.Add(time.Duration(ms) * time.Millisecond)
		return &events.Stored{Type: kind, Subject: "web1", Time: at, RecordedTime: at, Data: raw}
	}
	commanded := func(verb wire.Verb, ms int) *events.Stored {
		return event(events.Commanded, ms, events.Event{Command: "c1", Verb: verb})
	}
	provisioned := func(ms int) *events.Stored {
		return event(events.Provisioned, ms, events.Event{})
	}
	denied := func(ms int) *events.Stored {
		return event(events.Refused, ms, events.Event{Code: wire.CodeDenied})
	}
	// The node's own clock is a year behind.
	started := func(ms int) *events.Stored {
		e := event("io.muster.server.startup", ms, events.Event{})
		e.Time = e.Time.AddDate(-1, 0, 0)
		return e
	}
	type history []*events.Stored
	for name, test := range map[string]struct {
		read history
		want []error // what is told; none: it is still waited for
	}{
		"done":                                   {history{commanded(wire.VerbReconfigure, 10), provisioned(20)}, []error{nil}},
		"done, read before the command":          {history{provisioned(20), commanded(wire.VerbReconfigure, 10)}, []error{nil}},
		"the end of the command before":          {history{provisioned(9), commanded(wire.VerbReconfigure, 10)}, nil},
		"the same, read late":                    {history{commanded(wire.VerbReconfigure, 10), provisioned(9)}, nil},
		"a refusal before the command":           {history{denied(5), commanded(wire.VerbReprovision, 10)}, nil},
		"refused":                                {history{commanded(wire.VerbReprovision, 10), denied(20)}, []error{refused}},
		"refused, then done, and read backwards": {history{provisioned(30), denied(20), commanded(wire.VerbReprovision, 10)}, []error{nil}},
		"another's command":                      {history{event(events.Commanded, 10, events.Event{Command: "c2", Verb: wire.VerbReconfigure}), provisioned(20)}, nil},
		"a start, by the broker's clock":         {history{commanded(wire.VerbRestart, 10), started(20)}, []error{nil}},
		"a start before":                         {history{started(5), commanded(wire.VerbRestart, 10)}, nil},
	} {
		a := &awaited{command: "c1", told: make(chan error, 1)}
		w := &watch{waiting: map[wire.Identity]*awaited{"web1": a}}
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
