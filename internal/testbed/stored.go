package testbed

import (
	"errors"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
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
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	js, err := conn.JetStream(nats.MaxWait(patience))
	if err != nil {
		f.t.Fatal(err)
	}
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
		for _, a := range f.daemon.Alarms() {
			if a.Code == code {
				cause = a.Cause
				return true
			}
		}
		return false
	})
	return cause
}

// WaitNoAlarm waits until an alarm has been cleared.
func (f *Fleet) WaitNoAlarm(code wire.Code) {
	f.t.Helper()
	f.Eventually("no alarm "+string(code), func() bool {
		for _, a := range f.daemon.Alarms() {
			if a.Code == code {
				return false
			}
		}
		return true
	})
}
