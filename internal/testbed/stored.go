package testbed

import (
	"errors"
	"time"

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
	for stream := range js.StreamNames(nats.Context(ctx)) {
		sub, err := js.SubscribeSync("", nats.BindStream(stream), nats.OrderedConsumer(), nats.DeliverAll())
		if err != nil {
			f.t.Fatal(err)
		}
		info, err := sub.ConsumerInfo()
		if err != nil {
			f.t.Fatal(err)
		}
		var got uint64 // number of the last message, as the consumer counts
		for pending := info.NumPending + info.Delivered.Consumer; pending > 0; {
			m, err := sub.NextMsg(time.Second)
			switch {
			case errors.Is(err, nats.ErrTimeout) && ctx.Err() == nil:
				// The remaining messages may have been deleted meanwhile.
				if info, err = sub.ConsumerInfo(); err != nil {
					f.t.Fatalf("read %s: %v", stream, err)
				}
				pending = info.NumPending + info.Delivered.Consumer - min(got, info.Delivered.Consumer)
				continue
			case err != nil:
				f.t.Fatalf("read %s: %v", stream, err)
			}
			meta, err := m.Metadata()
			if err != nil {
				f.t.Fatal(err)
			}
			all = append(all, Stored{stream, m.Subject, m.Header, m.Data})
			pending, got = meta.NumPending, meta.Sequence.Consumer
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
