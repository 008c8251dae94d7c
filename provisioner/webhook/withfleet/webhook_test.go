package webhook_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/httpapi"
	"muster/provisioner/webhook"
)

func ask(t *testing.T, f *testbed.Fleet, nc *nats.Conn, n *simnode.Node) {
	t.Helper()
	if r, err := simnode.Enroll(f.Context(), nc, n.Request()); err != nil || r.Refusal == nil {
		t.Fatalf("a forged token: %v, %v", r, err)
	}
}

// hooks asks the provisioner for its webhooks.
func hooks(t *testing.T, f *testbed.Fleet) []events.Webhook {
	t.Helper()
	var all map[string][]events.Webhook
	c := httpapi.NewClient(filepath.Join(f.Dir, "data", httpapi.SocketName))
	if err := c.Do(f.Context(), http.MethodGet, "/v1/webhooks", nil, &all); err != nil {
		t.Fatal(err)
	}
	return all["webhooks"]
}

// alarm returns the cause of the webhooks' alarm, or "".
func alarm(f *testbed.Fleet) string {
	for _, a := range f.Daemon().Alarms() {
		if a.Code == events.AlarmWebhookFailed {
			return a.Cause
		}
	}
	return ""
}

// TestRefusalsAreDelivered has an admitted node, a refused one and a rogue, and finds the latter two at the endpoint:
// signed, and as documented.
func TestRefusalsAreDelivered(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, http.StatusNoContent, nil)
	pager := r.config("pager")
	pager.Timeout = conffile.Span(answered) // so that no delivery fails
	f := newFleet(t, soon, pager)
	web1 := f.Node("web1.example.net")
	f.Apply(web1, f.Enroll(web1))
	if code := f.Refused(f.Node("web1.example.net")); code != wire.CodeIdentityTaken {
		t.Fatalf("another key: %s", code)
	}
	rogue(t, f, "web2.example.net")
	types := map[events.Type]message{}
	for len(types) < 2 {
		m := r.next(t)
		if m.event.Type == events.AlarmRaised || m.event.Type == events.AlarmCleared {
			continue // for paused test machines
		}
		types[m.event.Type] = m
		if err := testbed.CheckEvent(m.body); err != nil {
			t.Errorf("delivered %s: %v", m.body, err)
		}
		if m.kind != "application/cloudevents+json" || len(m.id) != 32 {
			t.Errorf("content type %q, id %q", m.kind, m.id)
		}
	}
	for typ, code := range map[events.Type]wire.Code{events.Refused: wire.CodeIdentityTaken,
		events.Attempt: wire.CodeTokenInvalid} {
		if !strings.Contains(string(types[typ].event.Data), `"code":"`+string(code)+`"`) {
			t.Errorf("%s: %s, want %s", typ, types[typ].body, code)
		}
	}
	f.Eventually("all is delivered, and nothing waits", func() bool {
		h := hooks(t, f)[0]
		return h.Delivered >= 2 && h.Failed == 0 && h.Waiting == 0 && !h.LastDelivery.IsZero() && h.Endpoint == r.URL
	})
	f.Check()
}

// TestTriedAgainWithTheSameID has an endpoint refuse an event twice.
func TestTriedAgainWithTheSameID(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, http.StatusServiceUnavailable, nil)
	f := newFleet(t, soon, r.config("pager"))
	rogue(t, f, "web2.example.net")
	first, second := r.next(t), r.next(t)
	r.status.Store(http.StatusOK)
	if first.id != second.id || string(first.body) != string(second.body) {
		t.Errorf("tried again as another: %s %s, then %s %s", first.id, first.body, second.id, second.body)
	}
	f.Eventually("it is delivered", func() bool {
		h := hooks(t, f)[0]
		return h.Delivered == 1 && h.Failed >= 2 && h.GivenUp == 0 && h.FailingSince.IsZero()
	})
	if log := f.Log(); !strings.Contains(log, "webhook failed") || !strings.Contains(log, "webhook delivers again") ||
		strings.Contains(log, "hush") {
		t.Errorf("log: %s", log)
	}
}

// TestHangingEndpointDelaysNoOther enrolls a fleet while one endpoint never answers: another gets its events, and the
// alarm.
func TestHangingEndpointDelaysNoOther(t *testing.T) {
	t.Parallel()
	hangs, works := newReceiver(t, http.StatusOK, make(chan struct{})), newReceiver(t, http.StatusOK, nil)
	change := soon
	change.AlarmAfter = time.Nanosecond
	stuck := hangs.config("stuck")
	stuck.Timeout = conffile.Span(time.Second)
	pager := works.config("pager")
	pager.Timeout = conffile.Span(answered) // or a paused test machine raises the alarm
	f := newFleet(t, change, stuck, pager)
	const rogues = 20 // more than are delivered at once
	for range rogues {
		rogue(t, f, "web2.example.net")
	}
	hangs.next(t)
	for _, n := range f.Nodes(10) {
		f.Apply(n, f.Enroll(n))
	}
	seen := map[string]bool{}
	alarmed := false
	for len(seen) < rogues || !alarmed {
		m := works.next(t)
		if m.event.Type == events.AlarmRaised {
			alarmed = strings.Contains(string(m.event.Data), "webhook stuck: no answer within 1s")
			continue
		}
		seen[m.id] = true
	}
	if cause := alarm(f); !strings.Contains(cause, "stuck") || strings.Contains(cause, "pager") {
		t.Errorf("alarm %q, want stuck's", cause)
	}
	for len(hangs.got) > 0 {
		if m := <-hangs.got; m.event.Type == events.AlarmRaised {
			t.Errorf("told of its own failure: %s", m.body)
		}
	}
}

// TestEventIsGivenUp has an endpoint refuse all events for the whole schedule, and accept later ones.
func TestEventIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, http.StatusInternalServerError, nil)
	f := newFleet(t, webhook.Config{Schedule: webhook.Schedule{First: 10 * time.Millisecond,
		Max: 20 * time.Millisecond, Total: 50 * time.Millisecond}}, r.config("pager", "attempt"))
	rogue(t, f, "web2.example.net")
	f.Eventually("it is given up, and an alarm says so", func() bool {
		h := hooks(t, f)[0]
		return h.GivenUp == 1 && h.Failed == 4 &&
			strings.Contains(alarm(f), "webhook pager: answered 500 Internal Server Error")
	})
	if !strings.Contains(f.Log(), "event given up") {
		t.Error("the log does not say so")
	}
	r.status.Store(http.StatusOK)
	rogue(t, f, "web3.example.net")
	f.Eventually("the alarm is over with the next delivery",
		func() bool { return hooks(t, f)[0].Delivered == 1 && alarm(f) == "" })
	if !slices.ContainsFunc(f.Events(), func(e events.Event) bool {
		return e.Type == events.AlarmCleared && e.Code == events.AlarmWebhookFailed
	}) {
		t.Error("no event says that it is over")
	}
}

// TestDeliveryContinuesAfterARestart stops the provisioner while its endpoint is away.
func TestDeliveryContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, http.StatusBadGateway, nil)
	f := newFleet(t, soon, r.config("pager", "attempt"))
	rogue(t, f, "web2.example.net")
	first := r.next(t)
	f.Stop()
	r.status.Store(http.StatusOK)
	f.Start()
	f.Eventually("it is delivered", func() bool { return hooks(t, f)[0].Delivered == 1 })
	for len(r.got) > 0 {
		if m := <-r.got; m.id != first.id {
			t.Errorf("id %s, want %s", m.id, first.id)
		}
	}
}

// consumers returns the names of the durable consumers of a stream.
func consumers(t *testing.T, f *testbed.Fleet, stream string) []string {
	t.Helper()
	conn, err := f.Daemon().Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.RequestWithContext(f.Context(), "$JS.API.CONSUMER.NAMES."+stream, nil)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Consumers []string `json:"consumers"`
	}
	if err := json.Unmarshal(m.Data, &list); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Consumers, func(name string) bool { return !strings.HasPrefix(name, "webhook-") })
}

// TestRemovedWebhookIsForgotten removes one of two webhooks from the file, and changes the types of the other.
func TestRemovedWebhookIsForgotten(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, http.StatusOK, nil)
	change := soon
	change.ExpireAfter = time.Second
	list := make(chan []daemon.WebhookConfig, 1)
	list <- []daemon.WebhookConfig{r.config("a", "attempt", "alarm"), r.config("b", "alarm")}
	f := testbed.New(t, testbed.Options{Webhooks: change, Edit: func(c *daemon.Config) { c.Webhooks = <-list }})
	f.Eventually("both have consumers", func() bool {
		return slices.Equal(consumers(t, f, "MUSTER_EVENTS"), []string{"webhook-a", "webhook-b"}) &&
			slices.Equal(consumers(t, f, "MUSTER_ATTEMPTS"), []string{"webhook-a"})
	})
	f.Stop()
	list <- []daemon.WebhookConfig{r.config("a", "node.refused")}
	f.Start()
	f.Eventually("the unused consumers are gone", func() bool {
		return slices.Equal(consumers(t, f, "MUSTER_EVENTS"), []string{"webhook-a"}) &&
			len(consumers(t, f, "MUSTER_ATTEMPTS")) == 0
	})
	rogue(t, f, "web2.example.net")
	f.Enroll(f.Node("web1.example.net"))
	f.Refused(f.Node("web1.example.net"))
	if m := r.next(t); m.event.Type != events.Refused {
		t.Errorf("delivered %s, want what the file says now", m.event.Type)
	}
}
