package natsapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner"
)

func TestAPanicEndsOneMessage(t *testing.T) {
	t.Parallel()
	event := nats.NewMsg(strings.Replace(wire.AllNodeEvents,
		"*.*", wire.Identity("web1.example.net").SubjectToken()+".started", 1))
	event.Data = []byte(`{"data":{"boot":"one","serial":"1"}}`)
	for name, take := range map[string]func(*Service){
		"event": func(s *Service) { s.handleEvent(t.Context(), event) },
		"busy":  func(s *Service) { s.busy(t.Context(), newCall(nats.NewMsg(wire.SubjectEnroll))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			take(&Service{cfg: Config{
				Provisioner: &provisioner.Provisioner{}, Timeout: time.Minute,
				Log: slog.New(slog.NewTextHandler(&log, nil)),
			}})
			if !strings.Contains(log.String(), "message panicked") {
				t.Errorf("log %q, want the panic in it", log.String())
			}
		})
	}
}

func TestANodeDoesNotFillTheQueue(t *testing.T) {
	t.Parallel()
	e := newEvents()
	for i := range 2 * eventQueue {
		e.put(nats.NewMsg(fmt.Sprintf("events.loud.%d", i)))
	}
	e.put(nats.NewMsg("events.quiet.started"))
	e.put(nats.NewMsg("malformed"))
	if n := len(e.queue); n != eventQueue/2+2 {
		t.Fatalf("%d events wait, want half of the room for the loud node and two more", n)
	}
	for len(e.queue) > 0 {
		e.release(<-e.queue)
	}
	for i := range 2 * eventQueue {
		e.put(nats.NewMsg(fmt.Sprintf("events.node%d.started", i)))
	}
	if n := len(e.queue); n != eventQueue {
		t.Errorf("%d events wait, want %d", n, eventQueue)
	}
}
