package testbed

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"muster/internal/daemon"
	"muster/internal/wire"
	"muster/provisioner/events"
)

// streams checks that no stream acknowledges nodes' messages: JetStream would send the acknowledgement to any subject
// that a node names, in the provisioners' account.
func (c *checker) streams() {
	list, err := streamList(c.f.Context(), c.f.daemon)
	if err != nil {
		c.bad("%v", err)
	}
	for _, s := range list {
		for _, subject := range s.Config.Subjects {
			if strings.HasPrefix(subject, "muster.v1.") && !s.Config.NoAck {
				c.bad("stream %s acknowledges what nodes publish to %s", s.Config.Name, subject)
			}
		}
	}
}

func streamList(ctx context.Context, d *daemon.Daemon) (list []*nats.StreamInfo, err error) {
	conn, err := d.Connect("check")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	js, err := conn.JetStream()
	if err != nil {
		return nil, err
	}
	for s := range js.Streams(nats.Context(ctx)) {
		list = append(list, s)
	}
	if len(list) == 0 {
		err = errors.New("no streams are listed")
	}
	return list, err
}

func (c *cluster) streams() ([]*nats.StreamInfo, error) {
	return streamList(c.fleet.Context(), c.fleet.daemon)
}

// allLed reports whether every stream has a leader. During an election a request may get no answer.
func (c *cluster) allLed() bool {
	list, err := c.streams()
	return err == nil && !slices.ContainsFunc(list, func(s *nats.StreamInfo) bool {
		return s.Config.Replicas > 1 && (s.Cluster == nil || s.Cluster.Leader == "")
	})
}

// A Stored is one message in the store.
type Stored struct {
	Subject string
	Header  nats.Header
	Data    []byte
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
			all = append(all, Stored{m.Subject, m.Header, m.Data})
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
