package natsapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/natsapi"
)

// TestOneAddressDoesNotFillTheQueue blocks the only worker of a service and has one address send more requests than
// the queue holds. That address is told `busy`, and a later node from another address is served.
func TestOneAddressDoesNotFillTheQueue(t *testing.T) {
	t.Parallel()
	const queue, many = 4, 40
	f := testbed.New(t, testbed.Options{})
	hold, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	conn := service(t, f, "test.", func(s provisioner.Store) provisioner.Store {
		slow := &testbed.Faults{Store: s}
		slow.RecordWrites.Before(func(context.Context, *provisioner.Record) { once.Do(func() { close(held) }); <-hold })
		return slow
	}, func(c *natsapi.Config) {
		c.Workers, c.Queue = 1, queue
		c.MaxWait, c.Timeout = time.Minute, time.Minute // long enough for the whole test
	})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release) // before the service ends
	send := func(identity, host string) *nats.Subscription {
		sub, err := conn.SubscribeSync(conn.NewInbox())
		if err != nil {
			t.Fatal(err)
		}
		b, err := wire.Encode(f.Node(identity).Request())
		if err != nil {
			t.Fatal(err)
		}
		m := from(host, "test."+wire.SubjectEnroll, "provisioning", b)
		m.Reply = sub.Subject
		if err := conn.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		return sub
	}
	reply := func(sub *nats.Subscription) *wire.Reply { return next(t, f, sub) }
	const greedy = "192.0.2.1"
	working := send("greedy.example.net", greedy)
	<-held
	var waiting []*nats.Subscription
	for i := range many {
		waiting = append(waiting, send(fmt.Sprintf("greedy%d.example.net", i), greedy))
	}
	other := send("web1.example.net", "198.51.100.7")
	for i, sub := range waiting[queue:] {
		if r := reply(sub); r.Refusal == nil || r.Refusal.Code != wire.CodeBusy {
			t.Errorf("request %d of one address, beyond its room: %+v, want busy", queue+i, r)
		}
	}
	release()
	for _, sub := range append(waiting[:queue:queue], working, other) {
		if r := reply(sub); r.Enrolled == nil {
			t.Errorf("a request for which there was room: %+v", r.Refusal)
		}
	}
	f.Check()
}

// TestRequestsHaveTheirOwnConnection lists the broker's subscriptions: requests of nodes and acknowledgements of the
// store use different connections.
func TestRequestsHaveTheirOwnConnection(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	conn, err := f.Daemon().Connect("witness")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m, err := conn.RequestWithContext(f.Context(), "$SYS.REQ.ACCOUNT.PING.CONNZ", []byte(`{"subscriptions":true}`))
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Data struct {
			Connections []struct {
				Subscriptions []string `json:"subscriptions_list"`
			} `json:"connections"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &said); err != nil {
		t.Fatal(err)
	}
	want := []string{wire.SubjectApplied, wire.SubjectEnroll, wire.SubjectRenew, wire.SubjectCertificate, wire.AllNodeEvents}
	slices.Sort(want)
	found := false
	for _, c := range said.Data.Connections {
		if slices.Contains(c.Subscriptions, wire.SubjectEnroll) {
			found = true
			if slices.Sort(c.Subscriptions); !slices.Equal(c.Subscriptions, want) {
				t.Errorf("who takes requests listens to %q, want %q", c.Subscriptions, want)
			}
		}
	}
	if !found {
		t.Errorf("nobody takes requests: %s", m.Data)
	}
}
