package testbed_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	_ "muster/internal/eventcheck" // checks what fleets emit
	"muster/internal/simnode"
	"muster/internal/testbed"
)

// TestATokenTakesNotAllPlacesOfACluster has the holder of a token take, at one server, every place that a cluster
// gives, and try for more all the time: machines with another token are provisioned at either.
func TestATokenTakesNotAllPlacesOfACluster(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 2})
	f.Stop()
	for _, s := range f.Servers() {
		path := filepath.Join(s.Dir, "nats-server.conf")
		b, err := os.ReadFile(path)
		if err != nil || strings.Count(string(b), "24000") != 2 {
			t.Fatalf("24000 is not twice in %s: %v", path, err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), "24000", "32")), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Kill()
		s.Start()
	}
	f.Start()
	stolen, other := f.Token(nil), f.Token(nil)
	ctx, stop := context.WithCancel(f.Context())
	var thief sync.WaitGroup
	var held []*nats.Conn // the thief's
	defer thief.Wait()
	defer stop()
	full := make(chan struct{})
	once := sync.OnceFunc(func() { close(full) })
	thief.Go(func() { // at one: servers that hear of each other's too late drop the newest of both
		for ctx.Err() == nil {
			nc, err := simnode.Dial(f.Servers()[0].URL(), stolen)
			switch {
			case err == nil:
				held = append(held, nc)
			case strings.Contains(err.Error(), "maximum account active connections exceeded"):
				once()
			}
		}
	})
	f.Eventually("the thief has all that he gets", func() bool {
		select {
		case <-full:
			return true
		default:
			return false
		}
	})
	for i, name := range []string{"web1.example.net", "web2.example.net"} {
		n, err := simnode.New(name, other)
		if err != nil {
			t.Fatal(err)
		}
		f.Eventually(name+" is provisioned", func() bool {
			nc, err := simnode.Dial(f.Servers()[i].URL(), n.Token)
			if err != nil {
				return false
			}
			defer nc.Close()
			r, err := simnode.Enroll(f.Context(), nc, n.Request())
			if err != nil || r.Enrolled == nil {
				return false
			}
			a, err := n.Confirm(r.Enrolled)
			if err != nil {
				t.Fatal(err)
			}
			r, err = simnode.Apply(f.Context(), nc, a)
			return err == nil && r.Applied != nil
		})
	}
	stop()
	thief.Wait()
	there := 0
	for _, nc := range held {
		if nc.IsConnected() {
			there++
		}
		nc.Close()
	}
	if there < 16 {
		t.Errorf("the thief has %d connections by then: it was not for want of places", there)
	}
	f.Check()
}
