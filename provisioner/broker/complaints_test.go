package broker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

// TestStrangersDoNotFillTheLog has a machine with a token send headers that are
// none, of which nats.go complains to us. Nothing is said about it. Other
// complaints are in the log, where nats.go would print them.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nc := s.muster(t)
	sub, err := nc.SubscribeSync(wire.SubjectEnroll)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	c := s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken})
	const header = "NATS/1.0\r\nnone\r\n\r\n"
	if got := c.say(fmt.Sprintf("HPUB %s %d %d\r\n%s", wire.SubjectEnroll, len(header), len(header), header)); len(got) > 0 {
		t.Fatalf("answered %q", got)
	}
	if _, err := sub.NextMsg(patience); err != nil {
		t.Fatal(err)
	}
	if err := nc.LastError(); !errors.Is(err, nats.ErrBadHeaderMsg) {
		t.Errorf("nats.go complains of %v, want %v", err, nats.ErrBadHeaderMsg)
	}
	nc.ErrorHandler()(nc, sub, nats.ErrBadHeaderMsg)
	nc.ErrorHandler()(nc, sub, nats.ErrSlowConsumer)
	got := s.log.String()
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, nats.ErrSlowConsumer.Error()) || !strings.Contains(got, wire.SubjectEnroll) {
		t.Errorf("log = %q, want one line, about the slow consumer", got)
	}
}
