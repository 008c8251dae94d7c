package testbed

import (
	"errors"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// A Stored is one message in the store.
type Stored struct {
	Stream, Subject string
	Header          nats.Header
	Data            []byte
}

// Stored returns every message of every stream.
func (f *Fleet) Stored() []Stored {
	f.t.Helper()
	conn, err := f.daemon.Connect("reader")
	must(f.t, err)
	defer conn.Close()
	js, err := conn.JetStream(nats.MaxWait(patience))
	must(f.t, err)
	var all []Stored
	ctx := f.Context()
	for stream := range js.Streams(nats.Context(ctx)) {
		name := stream.Config.Name
		for at := max(1, stream.State.FirstSeq); at <= stream.State.LastSeq; at++ {
			m, err := js.GetMsg(name, at, nats.Context(ctx))
			if errors.Is(err, nats.ErrMsgNotFound) { // deleted
				continue
			}
			if err != nil {
				f.t.Fatalf("read %s: %v", name, err)
			}
			all = append(all, Stored{name, m.Subject, m.Header, m.Data})
		}
	}
	return all
}

// WaitAlarm waits until an alarm is raised, and returns its cause.
func (f *Fleet) WaitAlarm(code wire.Code) string {
	f.t.Helper()
	cause := ""
	f.Eventually("alarm "+string(code), func() bool {
		a := f.alarm(code)
		if a != nil {
			cause = a.Cause
		}
		return a != nil
	})
	return cause
}

// WaitNoAlarm waits until an alarm has been cleared.
func (f *Fleet) WaitNoAlarm(code wire.Code) {
	f.t.Helper()
	f.Eventually("no alarm "+string(code), func() bool { return f.alarm(code) == nil })
}

// alarm returns a raised alarm, or nil.
func (f *Fleet) alarm(code wire.Code) *events.Alarm {
	for _, a := range f.daemon.Alarms() {
		if a.Code == code {
			return &a
		}
	}
	return nil
}
