package natsapi_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/natsapi"
)

// TestMalformedMessagesAreRefusedAndRecorded sends messages that no honest node sends. Each is refused with its
// code, and is an event in the stream of attempts.
func TestMalformedMessagesAreRefusedAndRecorded(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	nc := f.Dial(f.Token(nil))
	large := `{"v":1,"sealed":false,"body":{"id":"x","boot":"y","facts":{"a":"` + strings.Repeat("x", wire.MaxFactsBytes) + `"}}}`
	tests := map[string]struct {
		subject, data string
		want          wire.Code
	}{
		"nothing":               {wire.SubjectEnroll, ``, wire.CodeBadRequest},
		"not JSON":              {wire.SubjectEnroll, `hello`, wire.CodeBadRequest},
		"an unknown member":     {wire.SubjectEnroll, `{"v":1,"sealed":false,"x":1,"body":{}}`, wire.CodeBadRequest},
		"another version":       {wire.SubjectEnroll, `{"v":2,"x":1}`, wire.CodeUnsupportedVersion},
		"a sealed message":      {wire.SubjectEnroll, `{"v":1,"sealed":true,"key":"k","enc":"AA==","ct":"AA=="}`, wire.CodeSealedInvalid},
		"too many facts":        {wire.SubjectEnroll, large, wire.CodeTooLarge},
		"a request as applied":  {wire.SubjectApplied, `{"v":1,"sealed":false,"body":{"id":"x","token":"y"}}`, wire.CodeBadRequest},
		"applied in version 99": {wire.SubjectApplied, `{"v":99}`, wire.CodeUnsupportedVersion},
	}
	for name, tt := range tests {
		m, err := nc.RequestWithContext(f.Context(), tt.subject, []byte(tt.data))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r, err := wire.DecodeReply(m.Data)
		if err != nil || r.Refusal == nil || r.Refusal.Code != tt.want {
			t.Errorf("%s: %+v, %v, want %s", name, r, err, tt.want)
			continue
		}
		if want := tt.want == wire.CodeUnsupportedVersion; want != slices.Equal(r.Refusal.Versions, wire.SupportedVersions) {
			t.Errorf("%s: versions %v", name, r.Refusal.Versions)
		}
		if !slices.ContainsFunc(f.Events(), func(e events.Event) bool {
			return e.Code == tt.want && e.Type == events.Attempt && e.Source == "127.0.0.1"
		}) {
			t.Errorf("%s: no event of type %s from 127.0.0.1", name, events.Attempt)
		}
	}
	f.Check()
}

// TestBusyRepliesSpreadTheRetries blocks the only worker of a service without a queue. Further requests are told
// `busy` with retry times one after the other.
func TestBusyRepliesSpreadTheRetries(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	hold, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p := f.Provisioner(func(s provisioner.Store) provisioner.Store {
		slow := &testbed.Faults{Store: s}
		slow.RecordWrites.Before(func(context.Context, *provisioner.Record) { once.Do(func() { close(held) }); <-hold })
		return slow
	})
	conn, err := f.Daemon().Connect("second provisioner")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// Subjects of its own keep the fleet's first provisioner out of it.
	service := natsapi.New(natsapi.Config{Conn: conn, Provisioner: p, Installation: "x", Sign: unsigned, Workers: 1, Queue: 1, Prefix: "test."})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	ready := make(chan struct{})
	go func() { ended <- service.Run(ctx, func() { close(ready) }) }()
	<-ready
	send := func(identity string) *nats.Subscription {
		inbox := conn.NewInbox()
		sub, err := conn.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		b, err := wire.Encode(f.Node(identity).Request())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.PublishRequest("test."+wire.SubjectEnroll, inbox, b); err != nil {
			t.Fatal(err)
		}
		return sub
	}
	reply := func(sub *nats.Subscription) *wire.Reply { return next(t, f, sub) }
	working := send("web1.example.net")
	<-held
	waiting := send("web2.example.net")
	for i := range 20 {
		r := reply(send("web3.example.net"))
		if r.Refusal == nil || r.Refusal.Code != wire.CodeBusy || r.Refusal.RetryAfter < 500 || r.Refusal.RetryAfter > 1000 || r.ID == "" {
			t.Fatalf("request %d: %+v, want busy for the half second that 20 requests take at most", i, r)
		}
	}
	// Told to stop, it still finishes what it has taken.
	stop()
	close(hold)
	for _, sub := range []*nats.Subscription{working, waiting} {
		if r := reply(sub); r.Enrolled == nil {
			t.Errorf("a request that was taken: %+v", r.Refusal)
		}
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Run = %v", err)
		}
	case <-f.Context().Done():
		t.Fatal("does not stop")
	}
	f.Check()
}

// TestRequestsThatWaitedTooLongAreToldBusy gives a service so little time that every queued request has waited too
// long.
func TestRequestsThatWaitedTooLongAreToldBusy(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	conn, err := f.Daemon().Connect("second provisioner")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// Subjects of its own keep the fleet's first provisioner out of it.
	service := natsapi.New(natsapi.Config{Conn: conn, Provisioner: f.Provisioner(nil), Installation: "x", Sign: unsigned, MaxWait: 1, Prefix: "test."})
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() { ended <- service.Run(ctx, func() { close(ready) }) }()
	<-ready
	b, err := wire.Encode(f.Node("web1.example.net").Request())
	if err != nil {
		t.Fatal(err)
	}
	m, err := conn.RequestWithContext(f.Context(), "test."+wire.SubjectEnroll, b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.DecodeReply(m.Data)
	if err != nil || r.Refusal == nil || r.Refusal.Code != wire.CodeBusy || r.Refusal.RetryAfter < 500 || r.ID == "" {
		t.Errorf("%+v, %v; want busy, and when to come back", r, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
	if n := f.Revisions("web1.example.net"); n > 0 {
		t.Errorf("%d revisions are on record", n)
	}
	f.Check()
}

// TestSourceAddressComesFromTheBroker sends a header that claims another address.
func TestSourceAddressComesFromTheBroker(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	nc := f.Dial(n.Token)
	b, err := wire.Encode(n.Request())
	if err != nil {
		t.Fatal(err)
	}
	m := nats.NewMsg(wire.SubjectEnroll)
	m.Data = b
	claim, _ := json.Marshal(map[string]string{"host": "203.0.113.7"})
	m.Header.Set("Nats-Request-Info", string(claim))
	if _, err := nc.RequestMsgWithContext(f.Context(), m); err != nil {
		t.Fatal(err)
	}
	if r := f.Record(n.Identity); r == nil || r.Source != "127.0.0.1" {
		t.Errorf("record = %+v, want source 127.0.0.1", r)
	}
	f.Check()
}

// TestReplySentToAnotherInboxHasAForeignRequestID names the inbox of another connection as reply subject. The reply
// carries a request id that the inbox's owner never used, which is why agents compare it.
func TestReplySentToAnotherInboxHasAForeignRequestID(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	victim := f.Dial(f.Token(nil))
	inbox := victim.NewInbox()
	sub, err := victim.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Flush(); err != nil {
		t.Fatal(err)
	}
	attacker := f.Node("evil.example.net")
	r := attacker.Request()
	b, err := wire.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	nc := f.Dial(attacker.Token)
	if err := nc.PublishRequest(wire.SubjectEnroll, inbox, b); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	m, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		t.Fatalf("NATS now keeps such replies away; say so in docs/security.md: %v", err)
	}
	reply, err := wire.DecodeReply(m.Data)
	if err != nil || reply.ID != r.ID {
		t.Errorf("reply = %+v, %v, want one to request %s", reply, err, r.ID)
	}
	f.Check()
}

// TestForgedBrokerHeaderIsIgnored sends a header of the broker's together with one whose value makes nats-server
// overlook it, so that both arrive. The forged one is ignored, sealed or not.
func TestForgedBrokerHeaderIsIgnored(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	nc := f.Dial(n.Token)
	b, err := wire.Encode(n.Request())
	if err != nil {
		t.Fatal(err)
	}
	m := nats.NewMsg(wire.SubjectEnroll)
	m.Data = b
	m.Header["A"] = []string{"Nats-Request-InfoNats-Request-Info"}
	m.Header["Nats-Request-Info"] = []string{`{"acc":"FLEET","user":"web1.example.net","host":"198.51.100.7"}`}
	got, err := nc.RequestMsgWithContext(f.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.DecodeReply(got.Data)
	if err != nil || r.Refusal == nil || r.Refusal.Code != wire.CodeBadRequest {
		t.Errorf("reply = %+v, %v, want %s", r, err, wire.CodeBadRequest)
	}
	if f.Record("web1.example.net") != nil {
		t.Error("the request was granted")
	}
	refused := slices.DeleteFunc(f.Events(), func(e events.Event) bool { return e.Code != wire.CodeBadRequest })
	if len(refused) != 1 || refused[0].Source != "" {
		t.Errorf("reported as %+v, want one without an address: of two, nobody knows which is the broker's", refused)
	}
	f.Enroll(n)
	f.Check()
}
