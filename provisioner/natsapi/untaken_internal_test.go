package natsapi

import (
	"errors"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/internal/queuegroup"
	"muster/internal/wire"
)

func TestUntakenMessagesAreBounded(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	conn := connect(t, s)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	service := &Service{cfg: Config{Conn: conn}}
	subs, err := service.group(func(*nats.Msg) { <-over }).Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	from := connect(t, s)
	for range queuegroup.MaxPending + 2 { // one more than the limit, and the one that is held
		if err := from.Publish(wire.SubjectEnroll, nil); err != nil {
			t.Fatal(err)
		}
	}
	// The broker has sent all messages, and then all have arrived.
	if err := errors.Join(from.Flush(), conn.Flush()); err != nil {
		t.Fatal(err)
	}
	if n, err := subs[0].Dropped(); err != nil || n == 0 {
		t.Errorf("nothing is dropped (%v)", err)
	}
	// Dropped messages are counted first.
	if n, _, err := subs[0].MaxPending(); err != nil || n > queuegroup.MaxPending+1 {
		t.Errorf("%d requests waited (%v), want %d at most", n, err, queuegroup.MaxPending)
	}
}

// connect returns a connection to a server of the test's process.
func connect(t *testing.T, s *server.Server) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}
