package broker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/provisioner/broker"
)

// few has a server have 32 places for machines without a certificate.
func few(text string) string { return strings.ReplaceAll(text, "12000", "32") }

// TestATokenTakesNotAllPlacesOfAServer has two provisioners answer a nats-server, and the holder of a
// token take every place that he gets, and try for more all the time. Machines with
// another token get in and stay, and those with the same token from another address.
func TestATokenTakesNotAllPlacesOfAServer(t *testing.T) {
	t.Parallel()
	o := newServer(t, few)
	cfg := o.config(t)
	byToken(&cfg)
	for range 2 {
		o.provisionerWith(t, broker.ExternalConfig{URLs: o.url, Keys: o.keys, Gate: cfg.Gate})
	}
	ctx, stop := context.WithCancel(t.Context())
	var thief sync.WaitGroup
	defer thief.Wait()
	defer stop()
	turnedAway := make(chan string, 1)
	for range 2 {
		thief.Go(func() {
			for ctx.Err() == nil {
				m, said := come(t, o.url, "stolen", "127.0.0.1")
				if m != nil {
					continue
				}
				select {
				case turnedAway <- said:
				default:
				}
			}
		})
	}
	if said := receive(t, "end to what the thief gets", turnedAway); !strings.Contains(said, "maximum account active connections exceeded") {
		t.Errorf("the thief is told %q, want that there is no place", said)
	}
	var in []*machine
	enter := func(token, from string) {
		t.Helper()
		eventually(t, "place for "+token+" from "+from, func() bool {
			m, _ := come(t, o.url, token, from)
			if m != nil {
				in = append(in, m)
			}
			return m != nil
		})
	}
	for i := range 4 {
		enter(fmt.Sprintf("other %d", i), "127.0.0.1")
	}
	enter("stolen", "127.0.0.2")
	if slices.ContainsFunc(in, func(m *machine) bool { return !m.stays() }) {
		t.Error("who had few places has lost one")
	}
}

// TestWhoCannotLookTurnsNobodyAway has machines come and go at a server that does not tell a provisioner
// who is connected: they are more than there are places, and never at once.
func TestWhoCannotLookTurnsNobodyAway(t *testing.T) {
	t.Parallel()
	o := newOutside(t, func(text string) string {
		return strings.Replace(few(text), `"$SYS.REQ.SERVER.PING.CONNZ", `, "", 1)
	})
	for i := range 64 {
		var m *machine
		eventually(t, fmt.Sprintf("place for machine %d", i), func() bool {
			m, _ = come(t, o.url, goodToken, "127.0.0.1")
			return m != nil
		})
		_ = m.conn.Close()
	}
}
