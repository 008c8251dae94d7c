package fleet

import (
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
)

// TestOrders says what has become of commands, by what events tell.
func TestOrders(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	type event = events.Event
	ordered := func(verb wire.Verb, id, cause string) event {
		return event{Type: events.Commanded, Verb: verb, Command: id, By: "ann", Why: "rack 4", Cause: cause}
	}
	is := func(typ events.Type) event { return event{Type: typ} }
	refused := func(c wire.Code) event { return event{Type: events.Refused, Code: c} }
	for name, tt := range map[string]struct {
		events   []event // a second apart, the first at 12:00:00
		says, do string  // says begins after "ann commanded the node at "
	}{
		"none": {events: []event{is(events.ServerStartup)}},
		"done": {[]event{ordered(wire.VerbReprovision, "1", ""), is(events.Provisioned)},
			`2026-03-01T12:00:00Z to enroll again ("rack 4"): done at 2026-03-01T12:00:01Z.`, ""},
		"done before": {[]event{is(events.ServerStartup), ordered(wire.VerbRestart, "1", "")},
			"2026-03-01T12:00:01Z to restart its agent (\"rack 4\"): the node acknowledged it, but has not reported " +
				"it done.", "doctor"},
		"other": {[]event{ordered(wire.VerbRestart, "1", ""), is(events.Provisioned), refused(wire.CodeDenied)},
			"has not reported it done", "doctor"},
		"silent": {[]event{ordered(wire.VerbReconfigure, "1", "the node does not answer")},
			"may not have received it", "muster node reconfigure web1"},
		"again": {[]event{ordered(wire.VerbReconfigure, "1", "silent"), is(events.Provisioned),
			ordered(wire.VerbReconfigure, "1", "")},
			"T12:00:00Z to fetch its configuration (\"rack 4\"): done at 2026-03-01T12:00:01Z", ""},
		"the last": {[]event{ordered(wire.VerbReprovision, "1", ""), is(events.Provisioned),
			ordered(wire.VerbShutdown, "2", "")}, "to stop its agent", "doctor"},
		"refused": {[]event{ordered(wire.VerbReprovision, "1", ""), refused(wire.CodeBusy),
			refused(wire.CodeDenied)}, "the node was refused at 2026-03-01T12:00:02Z: " + string(wire.CodeDenied), ""},
		"helped": {[]event{ordered(wire.VerbReprovision, "1", ""), refused(wire.CodeTokenRevoked),
			is(events.Provisioned), refused(wire.CodeTokenRevoked)}, "done at 2026-03-01T12:00:02Z", ""},
		"ended": {[]event{is(events.ServerStartup), is(events.ServerShutdown)},
			"The agent stopped at 2026-03-01T12:00:01Z", "start the agent"},
		"back": {events: []event{is(events.ServerShutdown), is(events.ServerStartup)}},
	} {
		for i := range tt.events {
			tt.events[i].Time = noon.Add(time.Duration(i) * time.Second)
		}
		e := &explainer{
			Explanation: &Explanation{Identity: "web1"},
			now:         noon.Add(time.Hour),
			record:      &provisioner.Record{},
		}
		e.lastOrder(tt.events)
		var says, do string
		for _, f := range e.Findings {
			says += f.Text
			for _, a := range f.Do {
				do += a.Command() + a.Text
			}
		}
		if !strings.Contains(says, tt.says) || (tt.says == "") != (says == "") || !strings.Contains(do, tt.do) ||
			(tt.do == "") != (do == "") {
			t.Errorf("%s: says %q, do %q; want %q, %q", name, says, do, tt.says, tt.do)
		}
	}
}
