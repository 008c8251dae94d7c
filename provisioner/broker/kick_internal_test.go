package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

const kickedNode wire.Identity = "web1.example.net"

// kicking returns an External of one server, which admits no certificate any more, and a
// connection of kickedNode to that. What it closes is closed when the connection is.
func kicking(t *testing.T) (e *External, closed chan struct{}) {
	t.Helper()
	e, s := watching(t, 0)
	closed = make(chan struct{})
	connected(t, s, nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	return e, closed
}

// connected returns a connection of kickedNode.
func connected(t *testing.T, s *server.Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), append(opts, nats.UserInfo(string(kickedNode), "secret"), nats.NoReconnect())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// watching returns an External of one server, and the server, which drops whom more waits for
// than pending, in bytes, if that is not 0.
func watching(t *testing.T, pending int64) (*External, *server.Server) {
	t.Helper()
	keys, err := NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	keys.System = "control:secret"
	fleet, system := server.NewAccount(AccountFleet), server.NewAccount(AccountSystem)
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, SystemAccount: AccountSystem, Accounts: []*server.Account{fleet, system}, MaxPending: pending, MaxPayload: 1 << 16,
		Users: []*server.User{{Username: string(kickedNode), Password: "secret", Account: fleet}, {Username: "control", Password: "secret", Account: system, Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: controlSays[:]}, Subscribe: &server.SubjectPermission{Allow: controlHears[:]},
		}}, {Username: "listener", Password: "secret", Account: system}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	e, err := NewExternal(ExternalConfig{URLs: s.ClientURL(), Keys: keys, Gate: GateConfig{
		TrustDomain: "example.net",
		VerifyToken: func(Presented) (Token, error) { return Token{}, nil },
		AdmitNode:   func(context.Context, wire.Identity, string) error { return nil },
		LiveNode:    func(context.Context, wire.Identity) ([]string, error) { return nil, nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := e.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	return e, s
}

// TestManyConnectionsAreListedInPages has more connections than the server may say of at
// once, and those that come and go while they are listed: each that was there before and
// after is listed, and once.
func TestManyConnectionsAreListedInPages(t *testing.T) {
	t.Parallel()
	const connections, pages = 300, 20
	for name, gone := range map[string]struct{ first, each int }{
		"all stay":                         {0, 0},
		"some go, the oldest first":        {0, 3},
		"more than a page go":              {0, 2 * pages},
		"some go, of those not yet listed": {connections / 2, 3},
		"nearly all that are not listed":   {pages, connections - 2*pages},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, s := watching(t, connections*250) // each is 350 bytes or more
			e.firstPage, e.page = pages, pages
			e.answerTimeout, e.pagesTimeout = time.Minute, 10*time.Minute // on a machine with much else to do
			there := make(map[uint64]*nats.Conn)
			var order []uint64 // oldest first
			join := func() {
				nc := connected(t, s)
				number, err := nc.GetClientID()
				if err != nil {
					t.Fatal(err)
				}
				there[number], order = nc, append(order, number)
			}
			for range connections {
				join()
			}
			before := slices.Clone(order)
			listed := make(map[uint64]int)
			err := e.connections(t.Context(), control(t, e), nil, func(held map[wire.Identity][]connection) {
				for _, c := range held[kickedNode] {
					listed[c.number]++
				}
				to := min(gone.first+gone.each, len(order))
				from := min(gone.first, to)
				for _, number := range order[from:to] {
					there[number].Close()
					delete(there, number)
				}
				order = slices.Delete(order, from, to)
				join()
				settled(t, s, len(there)+1) // and ours
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, number := range before {
				if n := listed[number]; n > 1 || n == 0 && there[number] != nil {
					t.Errorf("connection %d was listed %d times, and is there: %v", number, n, there[number] != nil)
				}
			}
		})
	}
}

// TestFewConnectionsAreOneQuestion counts what a server is asked, which has as many
// connections as it says of at once.
func TestFewConnectionsAreOneQuestion(t *testing.T) {
	t.Parallel()
	e, s := watching(t, 0)
	e.firstPage = 3
	for range e.firstPage {
		connected(t, s)
	}
	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("listener", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	asked, err := nc.SubscribeSync("$SYS.REQ.SERVER.>")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	count := func() int {
		listed := 0
		if err := e.connections(t.Context(), control(t, e), nil, func(held map[wire.Identity][]connection) { listed += len(held[kickedNode]) }); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil { // what was asked is here by now
			t.Fatal(err)
		}
		questions, _, err := asked.Pending()
		if err != nil {
			t.Fatal(err)
		}
		for range questions {
			if _, err := asked.NextMsg(time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if want := s.NumClients() - 2; listed != want { // but for those of the control and of the listener
			t.Errorf("%d connections are listed, want %d", listed, want)
		}
		return questions
	}
	if n := count(); n != 1 {
		t.Errorf("%d questions for as many as are listed at once, want 1", n)
	}
	connected(t, s)
	if n := count(); n != 2 {
		t.Errorf("%d questions for one more, want 2", n)
	}
}

// TestWhoStopsListingIsNamed has a server that answers the first question, and is gone
// before the second.
func TestWhoStopsListingIsNamed(t *testing.T) {
	t.Parallel()
	e, s := watching(t, 0)
	e.firstPage = 1
	connected(t, s)
	connected(t, s)
	err := e.connections(t.Context(), control(t, e), nil, func(map[wire.Identity][]connection) { s.Shutdown() })
	if err == nil || !strings.Contains(err.Error(), s.ID()) {
		t.Errorf("error = %v, want one that names the server %s", err, s.ID())
	}
}

// control returns the connection to the servers' own account.
func control(t *testing.T, e *External) *nats.Conn {
	t.Helper()
	nc, err := e.running()
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

// settled waits until the server has so many connections.
func settled(t *testing.T, s *server.Server, connections int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.NumClients() != connections {
		select {
		case <-t.Context().Done():
			t.Fatal("the connections do not settle")
		case <-tick.C:
		}
	}
}

// TestASilentServerHoldsUpNoOther knows a server that does not answer: what is connected
// to another one is dropped long before the silent one is given up, which is said.
func TestASilentServerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(*External) error{
		"disconnected": func(e *External) error { return e.Disconnect(kickedNode) },
		"looked at": func(e *External) error {
			again, err := e.Recheck(context.Background(), kickedNode)
			if len(again) != 1 {
				t.Errorf("Recheck = %v, %v, want to be asked again", again, err)
			}
			return err
		},
		"looked at with everybody": func(e *External) error {
			again, whole, err := e.RecheckAll(context.Background())
			if whole || len(again) > 0 {
				t.Errorf("RecheckAll = %v, %v, %v, want not all to be looked at, and nobody else to be repeated", again, whole, err)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, closed := kicking(t)
			e.answerTimeout = 10 * time.Second // a machine with much else to do takes as long as it usually is
			e.alive("silent")
			began, done := time.Now(), make(chan error, 1)
			go func() { done <- drop(e) }()
			select {
			case <-closed:
			case <-time.After(30 * time.Second):
				t.Fatal("the connection to the server that answers is not dropped")
			}
			if took := time.Since(began); took > e.answerTimeout/2 {
				t.Errorf("dropped after %v, and the silent server is given up after %v", took, e.answerTimeout)
			}
			if err := <-done; err == nil || !strings.Contains(err.Error(), "none came from silent") {
				t.Errorf("error = %v, want one that says who is silent", err)
			}
		})
	}
}

// TestAServerThatRefusesHasNoEmptyList asks a server what it does not understand: that it says
// so does not mean that it has no connections, nor that it acknowledges before it syncs.
func TestAServerThatRefusesHasNoEmptyList(t *testing.T) {
	t.Parallel()
	e, s := watching(t, 0)
	connected(t, s)
	err := gather(t.Context(), e, control(t, e), askConnections, server.ConnzOptions{Sort: "by nothing"}, func(id string, _ reported[server.Connz]) {
		t.Errorf("server %s has answered, want it to refuse", id)
	})
	if err == nil || !strings.Contains(err.Error(), s.ID()) || !strings.Contains(err.Error(), "invalid sorting option") {
		t.Errorf("error = %v, want one that names the server %s and what it says", err, s.ID())
	}
	e.mu.Lock()
	_, known := e.servers[s.ID()]
	e.mu.Unlock()
	if !known {
		t.Error("a server that refuses is not known to live")
	}
}

// TestWhoRefusesIsAskedAgain has one of two servers answer that it may not say: what is connected to the
// other is dropped, and the look is to be repeated.
func TestWhoRefusesIsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"an error": `"error":{"code":403,"description":"not authorized"}`,
		"nothing":  `"data":null`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, s := watching(t, 0)
			nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("listener", "secret"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			_, err = nc.Subscribe("$SYS.REQ.SERVER.PING.>", func(m *nats.Msg) {
				_ = m.Respond([]byte(`{"server":{"name":"other","id":"OTHER"},` + says + `}`))
			})
			if err == nil {
				err = nc.Flush()
			}
			if err != nil {
				t.Fatal(err)
			}
			e.alive("OTHER")
			refused := func(err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), "of server OTHER: ") || strings.Contains(err.Error(), "none came from") {
					t.Errorf("error = %v, want one that says who refuses, and not that it is silent", err)
				}
			}
			closed := make(chan struct{})
			connected(t, s, nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
			refused(e.Disconnect(kickedNode))
			<-closed
			again, err := e.Recheck(t.Context(), kickedNode)
			refused(err)
			if len(again) != 1 {
				t.Errorf("Recheck leaves %v, want to be asked again", again)
			}
			_, whole, err := e.RecheckAll(t.Context())
			refused(err)
			if whole {
				t.Error("RecheckAll says that all have been looked at")
			}
			if err := e.checkSync(t.Context(), control(t, e)); err != nil { // by the one that answers
				t.Errorf("checkSync = %v, want nothing concluded from who refuses", err)
			}
		})
	}
}

// TestAnErrorAboutManyNodesIsShort has a store that answers about none of a thousand.
func TestAnErrorAboutManyNodesIsShort(t *testing.T) {
	t.Parallel()
	var u unsettled
	for range 1000 {
		u.add(errors.New("the store is away"), kickedNode)
	}
	if text := u.err().Error(); len(u.ids) != 1000 || len(text) > 300 || !strings.Contains(text, "1000 nodes: ") || !strings.Contains(text, "store is away") {
		t.Errorf("%d are left, the error says %q; want how many there are and what ails some", len(u.ids), text)
	}
}

// TestASilentServerIsWaitedForOnce asks again and again while a server is silent, and once
// more after a sign of life.
func TestASilentServerIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	e, _ := kicking(t)
	e.answerTimeout = 10 * time.Second // a machine with much else to do takes as long as it usually is
	e.alive("silent")
	for i, waits := range []bool{true, false, false} {
		began := time.Now()
		if err := e.Disconnect(kickedNode); err == nil {
			t.Errorf("call %d: no error, want one that says who is silent", i+1)
		}
		if took := time.Since(began); took >= e.answerTimeout != waits {
			t.Errorf("call %d took %v, and a server is waited for for %v", i+1, took, e.answerTimeout)
		}
	}
	answered := make(map[string]bool)
	e.mu.Lock()
	for id := range e.servers {
		answered[id] = id != "silent"
	}
	e.mu.Unlock()
	e.alive("silent")
	if ids, wait := e.silent(answered); !wait || len(ids) != 1 {
		t.Errorf("after a sign of life %v are silent, waited for: %v", ids, wait)
	}
}

// TestANodeHasFewConnectionsToAServer has a node connect over and over to a server outside of the process:
// its oldest connections end, until it has as many as it may.
func TestANodeHasFewConnectionsToAServer(t *testing.T) {
	t.Parallel()
	const many = 3 * DefaultMaxPerNode
	e, s := watching(t, 0)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); e.keepFew(ctx) }()
	defer func() { stop(); <-ended }()
	var all []*nats.Conn
	for range many {
		all = append(all, connected(t, s))
	}
	settled(t, s, many+1)
	for range many {
		e.callout.arrivals.add(kickedNode)
	}
	settled(t, s, DefaultMaxPerNode+1) // and ours
	for i, nc := range all {
		if stays := nc.Flush() == nil; stays != (i >= many-DefaultMaxPerNode) {
			t.Errorf("of %d connections the %dth is there: %v; want the newest %d", many, i+1, stays, DefaultMaxPerNode)
		}
	}
}

// TestWhoConnectsSeldomIsNotLookedAt has nodes come as often as an agent does.
func TestWhoConnectsSeldomIsNotLookedAt(t *testing.T) {
	t.Parallel()
	a := newArrivals()
	for range DefaultMaxPerNode {
		a.add(kickedNode)
		a.add("web2.example.net")
	}
	select {
	case <-a.due:
		t.Errorf("%v are looked at after %d connections", a.take(), DefaultMaxPerNode)
	default:
	}
	a.add(kickedNode)
	<-a.due
	if ids := a.take(); !slices.Equal(ids, []wire.Identity{kickedNode}) {
		t.Errorf("after one more %v are looked at, want %s", ids, kickedNode)
	}
	if a.add(kickedNode); len(a.take()) > 0 {
		t.Error("who has been looked at is looked at again at once")
	}
}
