package broker_test

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

// Only connections of the given nodes, or of all, are dropped.
func TestRecheckDropsRevokedConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	issue := func(name string) tls.Certificate { return s.ca.issue(t, wire.RoleNode, name) }
	dial := func(cert tls.Certificate) *raw { return s.dial(t, s.tlsConfig(cert)).mustHello(nil) }
	before, after, another := issue("web.example.net"), issue("web.example.net"), issue("db.example.net")
	old, clone, current, other, short := dial(before), dial(before), dial(after), dial(another), dial(issue("web"))
	machine := s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken})
	stay := func(what string, all ...*raw) {
		t.Helper()
		for _, c := range all {
			if got := c.say(); len(got) > 0 {
				t.Errorf("%s: a connection answered %q, want it left alone", what, got)
			}
		}
	}
	end := func(all ...*raw) {
		t.Helper()
		for _, c := range all {
			if got := c.say(); !slices.Contains(got, "EOF") {
				t.Errorf("a connection answered %q, want it closed", got)
			}
		}
	}
	recheck := func() {
		t.Helper()
		if err := s.Recheck(t.Context(), "web.example.net", "never.example.net"); err != nil {
			t.Fatal(err)
		}
	}
	recheck()
	stay("nothing has changed", old, clone, current, other, short, machine)

	s.revoke(before, &broker.Denied{Code: wire.CodeStoreUnavailable, Err: errors.New("store is gone")})
	if err := s.Recheck(t.Context(), "web.example.net"); err == nil {
		t.Error("Recheck without an answer succeeds")
	}
	stay("without an answer", old)
	s.revoke(before, errors.New("superseded"))
	s.revoke(another, errors.New("revoked"))
	for range 2 { // twice is harmless
		recheck()
	}
	end(old, clone)
	stay("not asked about", current, other, short, machine)
	if err := s.RecheckAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	end(other)
	stay("all are checked", current, short, machine)
}

// The certificate is superseded after the gate's decision and before the connection is listed.
func TestCertificateSupersededWhileConnectingIsDropped(t *testing.T) {
	t.Parallel()
	asked, goOn := make(chan struct{}), make(chan struct{})
	first := true
	superseded := errors.New("superseded")
	s := newSite(t, func(c *broker.Config) {
		c.Gate.AdmitNode = func(context.Context, wire.Identity, broker.Certificate) error {
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
	if err := s.Recheck(t.Context(), "web1.example.net"); err != nil {
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

// A node sends a request with a forged header.
func TestRenewalsComeOnlyFromTheFleet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	origins := respond(t, s.muster(t), wire.SubjectRenew, []byte("ok"))
	node, inbox := s.client(t, s.mutual(s.ca.issue(t, wire.RoleNode, "web1.example.net")))
	m := nats.NewMsg(wire.SubjectRenew)
	m.Header.Add("Nats-Request-Info", `{"acc":"FLEET","user":"web2.example.net","name":"x","host":"10.0.0.1"}`)
	if _, err := node.RequestMsg(m, patience); err != nil {
		t.Fatal(err)
	}
	want := origin{Account: broker.AccountFleet, User: "web1.example.net", Name: inbox[len("_INBOX."):],
		Host: "127.0.0.1"}
	if o := receive(t, "request", origins); o != want {
		t.Errorf("the responder was told of %+v, want %+v", o, want)
	}
}
