package natsapi_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/natsapi"
)

// unsigned leaves replies as they are: simulated nodes do not check them.
func unsigned(*wire.Reply, string, string, []byte) error { return nil }

// service runs another service beside the fleet's own, under subjects that begin with prefix, on a provisioner whose
// store is wrapped by wrap, until the test ends.
func service(t *testing.T, f *testbed.Fleet, prefix string, wrap func(provisioner.Store) provisioner.Store, edit func(*natsapi.Config)) *nats.Conn {
	t.Helper()
	p := f.Provisioner(wrap)
	conn, err := f.Daemon().Connect("another provisioner")
	if err != nil {
		t.Fatal(err)
	}
	cfg := natsapi.Config{Conn: conn, Provisioner: p, Installation: "x", Sign: unsigned, Prefix: prefix, Budget: provisioner.NewBudget(1000, time.Now)}
	if edit != nil {
		edit(&cfg)
	}
	s := natsapi.New(cfg)
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() { close(ready) }) }()
	<-ready
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		conn.Close()
	})
	return conn
}

// ask sends a message to a subject and returns the reply.
func ask(t *testing.T, f *testbed.Fleet, conn *nats.Conn, subject string, message any) *wire.Reply {
	t.Helper()
	b, err := wire.Encode(message)
	if err != nil {
		t.Fatal(err)
	}
	m, err := conn.RequestWithContext(f.Context(), subject, b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.DecodeReply(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// next returns the next reply.
func next(t *testing.T, f *testbed.Fleet, sub *nats.Subscription) *wire.Reply {
	t.Helper()
	m, err := sub.NextMsgWithContext(f.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.DecodeReply(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// faulty is a store with replaced reads.
type faulty struct {
	provisioner.Store
	read func(ctx context.Context, id wire.Identity) error
}

func (s *faulty) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error) {
	if err := s.read(ctx, id); err != nil {
		return nil, 0, err
	}
	return s.Store.Record(ctx, id)
}

// TestPanicInOneRequestRefusesOnlyThatRequest makes one request panic. It is refused, and the only worker continues
// with the next.
func TestPanicInOneRequestRefusesOnlyThatRequest(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	conn := service(t, f, "test.", func(s provisioner.Store) provisioner.Store {
		return &faulty{s, func(_ context.Context, id wire.Identity) error {
			if id == "evil.example.net" {
				panic("as Choria's provisioner did of a CSR that was not PEM")
			}
			return nil
		}}
	}, func(c *natsapi.Config) { c.Workers = 1 })
	for range 3 {
		r := ask(t, f, conn, "test."+wire.SubjectEnroll, f.Node("evil.example.net").Request())
		if r.Refusal == nil || r.Refusal.Code != wire.CodeUnavailable {
			t.Fatalf("reply = %+v, want %s", r, wire.CodeUnavailable)
		}
	}
	n := f.Node("web1.example.net")
	var busy atomic.Int64
	r, _, err := persist(f, conn, "test."+wire.SubjectEnroll, n, n.Request(), &busy)
	if err != nil || r.Enrolled == nil || busy.Load() > 0 {
		t.Fatalf("the next request: %s, %v, sent away %d times", f.Cause(n.Identity), err, busy.Load())
	}
	a, err := n.Confirm(r.Enrolled)
	if err != nil {
		t.Fatal(err)
	}
	if r := ask(t, f, conn, "test."+wire.SubjectApplied, a); r.Applied == nil {
		t.Errorf("its confirmation: %+v", r.Refusal)
	}
	f.Check()
}

// TestRequestEndsWhenTheStoreDoesNotAnswer has a store that does not answer. The node is told so in time.
func TestRequestEndsWhenTheStoreDoesNotAnswer(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	conn := service(t, f, "test.", func(s provisioner.Store) provisioner.Store {
		return &faulty{s, func(ctx context.Context, _ wire.Identity) error {
			<-ctx.Done()
			return ctx.Err()
		}}
	}, func(c *natsapi.Config) { c.Timeout = 50 * time.Millisecond })
	n := f.Node("web1.example.net")
	request := n.Request()
	r := ask(t, f, conn, "test."+wire.SubjectEnroll, request)
	if r.Refusal == nil || r.Refusal.Code != wire.CodeUnavailable || r.ID != request.ID {
		t.Errorf("reply = %+v, want %s", r, wire.CodeUnavailable)
	}
	f.Enroll(n)
	f.Check()
}

// TestProvisionersShareTheRequests runs two services on the same subjects. Each request is handled by one of them.
func TestProvisionersShareTheRequests(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	const nodes = 10
	t.Cleanup(func() { // both services have stopped, so that nothing is in hand any more
		enrolled := 0
		for _, e := range f.Events() {
			if e.Type == events.Enrolled {
				enrolled++
			}
		}
		if enrolled != nodes {
			t.Errorf("%d requests were worked on, want %d", enrolled, nodes)
		}
		f.Check()
	})
	conn := service(t, f, "test.", nil, nil)
	service(t, f, "test.", nil, nil)
	var busy atomic.Int64
	for i := range nodes {
		n := f.Node(fmt.Sprintf("web%d.example.net", i))
		if r, _, err := persist(f, conn, "test."+wire.SubjectEnroll, n, n.Request(), &busy); err != nil || r.Enrolled == nil || busy.Load() > 0 {
			t.Fatalf("%s: %s, %v, sent away %d times", n.Identity, f.Cause(n.Identity), err, busy.Load())
		}
	}
}

// TestRunFailsIfItCannotSubscribe expects an error in place of a service that receives nothing.
func TestRunFailsIfItCannotSubscribe(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	p := f.Provisioner(nil)
	conn, err := f.Daemon().Connect("closed")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	s := natsapi.New(natsapi.Config{Conn: conn, Provisioner: p, Installation: "x", Sign: unsigned})
	if err := s.Run(f.Context(), nil); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("Run = %v, want %v", err, nats.ErrConnectionClosed)
	}
}
