package broker_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

// fingerprints is the allow-list of a site, by identity.
type fingerprints struct {
	mu   sync.Mutex
	live map[wire.Identity][]string // guarded by mu
	err  error                      // guarded by mu
}

// set makes these, and no others, the live certificates of a node.
func (f *fingerprints) set(id wire.Identity, certificates ...tls.Certificate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live[id] = nil
	for _, c := range certificates {
		sum := sha256.Sum256(c.Leaf.Raw)
		f.live[id] = append(f.live[id], hex.EncodeToString(sum[:]))
	}
}

func (f *fingerprints) get(_ context.Context, id wire.Identity) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.live[id]), f.err
}

// TestConnectionEndsWithItsCertificateSuperseded drops what holds a certificate
// that is not live any more, of the nodes that it is told of, and nothing else.
func TestConnectionEndsWithItsCertificateSuperseded(t *testing.T) {
	t.Parallel()
	list := &fingerprints{live: make(map[wire.Identity][]string)}
	s := newSite(t, func(c *broker.Config) { c.Gate.LiveNode = list.get })
	issue := func(name string) tls.Certificate { return s.ca.issue(t, wire.RoleNode, name) }
	dial := func(cert tls.Certificate) *raw { return s.dial(t, s.tlsConfig(cert)).mustHello(nil) }
	before, after, another, small := issue("web.example.net"), issue("web.example.net"), issue("db.example.net"), issue("web")
	old, clone, current, other, short := dial(before), dial(before), dial(after), dial(another), dial(small)
	machine := s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken})

	list.set("web.example.net", before, after) // a renewal is under way
	recheck := func() {
		t.Helper()
		if again, err := s.Recheck(t.Context(), "web.example.net", "never.example.net"); err != nil || len(again) > 0 {
			t.Fatalf("Recheck = %v, %v", again, err)
		}
	}
	recheck()
	for _, c := range []*raw{old, clone, current} {
		if got := c.say(); len(got) > 0 {
			t.Errorf("a connection with a live certificate answered %q, want it left alone", got)
		}
	}

	list.set("web.example.net", after)
	list.mu.Lock()
	list.err = errors.New("store is gone")
	list.mu.Unlock()
	if again, err := s.Recheck(t.Context(), "web.example.net"); err == nil || !slices.Equal(again, []wire.Identity{"web.example.net"}) {
		t.Errorf("Recheck without an answer = %v, %v, want to be asked again", again, err)
	}
	if got := old.say(); len(got) > 0 {
		t.Errorf("without an answer the connection was closed: %q", got)
	}
	list.mu.Lock()
	list.err = nil
	list.mu.Unlock()
	for range 2 { // twice is harmless
		recheck()
	}
	for _, c := range []*raw{old, clone} {
		if got := c.say(); !slices.Contains(got, "EOF") {
			t.Errorf("a connection of the superseded certificate answered %q, want it closed", got)
		}
	}
	for _, c := range []*raw{current, other, short, machine} {
		if got := c.say(); len(got) > 0 {
			t.Errorf("a connection of another certificate answered %q, want it left alone", got)
		}
	}
}

// A certificate is superseded between the gate's look at the record and the
// moment its connection can be found.
func TestSupersededWhileConnecting(t *testing.T) {
	t.Parallel()
	asked, goOn := make(chan struct{}), make(chan struct{})
	first := true
	superseded := errors.New("superseded")
	list := &fingerprints{live: make(map[wire.Identity][]string)}
	s := newSite(t, func(c *broker.Config) {
		c.Gate.LiveNode = list.get
		c.Gate.AdmitNode = func(context.Context, wire.Identity, string) error {
			if !first {
				return superseded
			}
			first = false
			close(asked)
			<-goOn
			return nil
		}
	})
	c := s.dial(t, s.tlsConfig(s.ca.issue(t, wire.RoleNode, "web1.example.net")))
	answer := make(chan []string, 1)
	go func() { answer <- c.hello(nil) }()
	receive(t, "question to the gate", asked)
	if _, err := s.Recheck(t.Context(), "web1.example.net"); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if got := receive(t, "answer", answer); !slices.Contains(got, "EOF") {
		t.Errorf("answer = %q, want the connection refused", got)
	}
	if d := s.lastRefusal(t); !errors.Is(d, superseded) {
		t.Errorf("refused with %v, want %v", d, superseded)
	}
}

func TestRecheckNeedsARunningBrokerAndAList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if _, err := s.Recheck(t.Context(), "web1.example.net"); err == nil {
		t.Error("Recheck without a list of live certificates succeeds")
	}
	list := &fingerprints{live: make(map[wire.Identity][]string)}
	s = newSite(t, func(c *broker.Config) { c.Gate.LiveNode = list.get })
	stop(t, s.Broker)
	if again, err := s.Recheck(t.Context(), "web1.example.net"); !errors.Is(err, broker.ErrNotRunning) || len(again) != 1 {
		t.Errorf("Recheck of a stopped broker = %v, %v, want %v", again, err, broker.ErrNotRunning)
	}
}

// TestRenewalsComeFromTheFleetAlone has a node ask, with a forged header, and
// the responder told who it is.
func TestRenewalsComeFromTheFleetAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	origins := respond(t, s.muster(t), wire.SubjectRenew, []byte("ok"))
	node, inbox := s.client(t, s.mutual(s.ca.issue(t, wire.RoleNode, "web1.example.net")))
	m := nats.NewMsg(wire.SubjectRenew)
	m.Header.Add("Nats-Request-Info", `{"acc":"FLEET","user":"web2.example.net","name":"x","host":"10.0.0.1"}`)
	if _, err := node.RequestMsg(m, patience); err != nil {
		t.Fatal(err)
	}
	want := origin{Account: broker.AccountFleet, User: "web1.example.net", Name: inbox[len("_INBOX."):], Host: "127.0.0.1"}
	if o := receive(t, "request", origins); o != want {
		t.Errorf("the responder was told of %+v, want %+v", o, want)
	}
}
