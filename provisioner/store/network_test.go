package store_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/provisioner/waiting"

	"muster/provisioner/trust"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/store"
)

// A cable carries a connection until it is cut.
type cable struct {
	mu   sync.Mutex
	cut  bool
	conn net.Conn
}

// Dial implements [nats.CustomDialer].
func (c *cable) Dial(network, address string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.New("no route to host")
	}
	conn, err := net.Dial(network, address)
	c.conn = conn
	return conn, err
}

func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut = cut; cut {
		_ = c.conn.Close()
	}
}

// TestAbandonedWriteIsNotSentLater writes a record while the network is away. When the network is back, perhaps hours
// later, the attempt has ended and its token use may belong to another node: the record must not appear.
func TestAbandonedWriteIsNotSentLater(t *testing.T) {
	t.Parallel()
	broker, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	broker.Start()
	t.Cleanup(func() {
		broker.Shutdown()
		broker.WaitForShutdown()
	})
	back := make(chan struct{})
	c := &cable{}
	conn, err := nats.Connect(broker.ClientURL(), nats.SetCustomDialer(c), nats.Timeout(10*time.Second),
		nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.ReconnectHandler(func(*nats.Conn) { close(back) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	st, err := store.Open(t.Context(), store.Config{Conn: conn, CAFingerprint: ours})
	if err != nil {
		t.Fatal(err)
	}
	lost := conn.StatusChanged(nats.RECONNECTING)
	c.set(true)
	<-lost
	for _, single := range []bool{false, true} {
		if single {
			st.Single()
		}
		if _, err := st.Put(t.Context(), record(web1, "a1"), 0); err == nil ||
			!strings.Contains(err.Error(), "no connection to the broker, nothing was sent") {
			t.Fatalf("a record is written without a connection: %v, want that nothing was sent", err)
		}
	}
	c.set(false)
	<-back
	// A buffered write would be sent before this.
	if _, err := st.Put(t.Context(), record(web2, "b1"), 0); err != nil {
		t.Fatal(err)
	}
	if err := st.CheckWatermark(t.Context()); err != nil { // no record is read before
		t.Fatal(err)
	}
	if r, revision, err := st.Record(t.Context(), web1); r != nil || err != nil {
		t.Errorf("record = %+v at %d, %v, want none", r, revision, err)
	}
}

// TestInterruptedListIsNotIncomplete lists pending nodes while the network is away for two seconds: the list goes on
// afterwards and is complete.
func TestInterruptedListIsNotIncomplete(t *testing.T) {
	t.Parallel()
	broker, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	broker.Start()
	t.Cleanup(func() {
		broker.Shutdown()
		broker.WaitForShutdown()
	})
	c := &cable{}
	conn, err := nats.Connect(broker.ClientURL(), nats.SetCustomDialer(c), nats.Timeout(10*time.Second),
		nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	st, err := store.Open(t.Context(), store.Config{Conn: conn, CAFingerprint: ours})
	if err != nil {
		t.Fatal(err)
	}
	const many = 1200 // more than the library asks for at once
	for i := range many {
		w := &waiting.Key{Schema: waiting.Schema, Identity: wire.Identity(fmt.Sprintf("web%d.example.net", i)),
			KeyHash: strings.Repeat("0", 64)}
		if err := st.PutWaiter(t.Context(), w, 0); err != nil {
			t.Fatal(err)
		}
	}
	came := map[wire.Identity]bool{}
	err = st.Waiters(t.Context(), "", func(w *waiting.Key, _ trust.Revision) error {
		if came[w.Identity] {
			t.Errorf("%s comes twice", w.Identity)
		}
		if came[w.Identity] = true; len(came) == 1 {
			c.set(true)
			time.AfterFunc(2*time.Second, func() { c.set(false) })
		}
		return nil
	})
	if err != nil || len(came) != many {
		t.Errorf("%d of %d wait, %v; want all", len(came), many, err)
	}
}
