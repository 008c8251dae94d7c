package server_test

import (
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// onComplaint takes that a node cannot use what it was offered.
func (f *fleet) onComplaint(m *nats.Msg, a *wire.Applied) {
	f.mu.Lock()
	answer := f.hears
	f.mu.Unlock()
	if answer == nil {
		answer = func(a *wire.Applied) *wire.Reply {
			return refuse(wire.CodeOfferUnusable, 0)(&wire.EnrollRequest{ID: a.ID})
		}
	}
	f.note(func() { f.complaints = append(f.complaints, a) })
	f.reply(m, answer(a))
}

// complained returns the complaints so far.
func (f *fleet) complained() []*wire.Applied {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.complaints)
}

// wantComplaint waits for the n-th complaint, which is about e, signed by its key, and says why.
func (f *fleet) wantComplaint(n int, e *wire.Enrolled, why string) {
	f.tb.Helper()
	f.await("a complaint", func() bool { return len(f.complained()) >= n })
	a := f.complained()[n-1]
	digest, said, _ := a.Unusable()
	if digest != e.Digest || a.Serial != e.Serial || !strings.Contains(said, why) {
		f.tb.Errorf("complaint about %s with %s: %q, want %s with %s: %q", a.Serial, digest, said, e.Serial, e.Digest, why)
	}
	block, _ := pem.Decode([]byte(e.Certificate))
	key, err := ca.PublicKey(block.Bytes)
	if err == nil {
		err = wire.CheckSignature(key, wire.AppliedDigest(a.Identity, a.Serial, a.Digest), a.Signature)
	}
	if err != nil {
		f.tb.Errorf("signature of a complaint: %v", err)
	}
}

// offersAlways offers a node the same each time that it asks, with that setting. The offer
// comes on the channel once it is made.
func (f *fleet) offersAlways(key, value string) <-chan *wire.Enrolled {
	given := make(chan *wire.Enrolled, 1)
	f.set(func() {
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			f.mu.Lock()
			e := f.given[r.Identity]
			f.mu.Unlock()
			if e == nil {
				e = f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) { e.Configuration[key] = value })
				f.set(func() { f.given[r.Identity] = e })
				given <- e
			}
			again := *e
			return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: &again}
		}
	})
	return given
}

// TestWhatANodeCannotUseIsSaid has a policy slip: the node says so once, however often it
// asks, without the value, and goes on when that is corrected.
func TestWhatANodeCannotUseIsSaid(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*wire.Applied) *wire.Reply{
		"to a provisioner": nil,
		"to a provisioner of before": func(a *wire.Applied) *wire.Reply {
			return refuse(wire.CodeNotIssued, 0)(&wire.EnrollRequest{ID: a.ID})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.set(func() { f.hears = answer })
			given := f.offersAlways("alive_interval", "1s3cret")
			a := f.run(f.node("web1.example.net"))
			f.wantComplaint(1, <-given, "alive_interval: is \"…\"")
			a.await(server.EventFailed, 4)
			if n := len(f.complained()); n != 1 {
				t.Errorf("%d complaints about one thing", n)
			}
			if said := f.complained()[0].Digest; strings.Contains(said, "s3cret") {
				t.Errorf("a value is told: %s", said)
			}
			f.set(func() { f.enroll = nil })
			a.await(server.EventConfirmed, 1)
		})
	}
}

// TestAComplaintThatNobodyHearsIsRepeated has a provisioner be busy when a node complains.
func TestAComplaintThatNobodyHearsIsRepeated(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() {
		f.hears = func(a *wire.Applied) *wire.Reply { return refuse(wire.CodeBusy, 0)(&wire.EnrollRequest{ID: a.ID}) }
	})
	f.pushes("provision", "true")
	f.run(f.node("web1.example.net"))
	f.await("complaints", func() bool { return len(f.complained()) >= 3 })
}

// TestWhoCannotUseAnOfferAsksWhenItIsTold has the provisioner say when to come back: a fleet
// that comes every minute would bury whatever else happens.
func TestWhoCannotUseAnOfferAsksWhenItIsTold(t *testing.T) {
	t.Parallel()
	for _, renewal := range []bool{false, true} {
		t.Run(fmt.Sprintf("renewal: %v", renewal), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.set(func() {
				f.hears = func(a *wire.Applied) *wire.Reply {
					return refuse(wire.CodeOfferUnusable, time.Hour)(&wire.EnrollRequest{ID: a.ID})
				}
			})
			clock := newClock()
			cfg := f.node("web1.example.net")
			looks := make(chan struct{}) // at the clock, by an agent that waits
			cfg.Now = func() time.Time {
				select {
				case looks <- struct{}{}:
				default:
				}
				return clock.now()
			}
			asked := func() int { return len(f.requests()) }
			if renewal {
				f.member(t, cfg)
				writeOrder(t, cfg, wire.NewID(), wire.VerbReconfigure)
				asked = func() int { return len(f.renewals()) }
				f.set(func() {
					f.renew = func(r *wire.RenewRequest) *wire.Reply {
						e := f.renewal(r)
						e.Configuration = map[string]string{"brokers": f.url(), "alive_interval": "100ms"}
						e.Digest = wire.Digest(e.Certificate, e.Files)
						return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: e}
					}
				})
			} else {
				f.pushes("alive_interval", "100ms")
			}
			a := f.run(cfg)
			f.await("a complaint", func() bool { return len(f.complained()) == 1 })
			a.await(server.EventFailed, 1)
			for range 100 {
				<-looks
			}
			if n := asked(); n != 1 {
				t.Errorf("it has asked %d times", n)
			}
			f.set(func() { f.enroll, f.renew = nil, nil })
			clock.advance(2 * time.Hour)
			a.await(server.EventConfirmed, 1)
		})
	}
}

// TestWhoGivesAnOrderHearsTheComplaint has an operator order a node to reconfigure once more,
// with the same slip.
func TestWhoGivesAnOrderHearsTheComplaint(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	_, a, nc := f.fleetNode(t)
	var given *wire.Enrolled // touched by the provisioner's goroutine only
	f.set(func() {
		f.renew = func(r *wire.RenewRequest) *wire.Reply {
			if given == nil {
				given = f.renewal(r)
				given.Configuration = map[string]string{"brokers": f.url(), "alive_interval": "100ms"}
				given.Digest = wire.Digest(given.Certificate, given.Files)
			}
			again := *given
			return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: &again}
		}
	})
	for i, id := range []string{"first", "second"} {
		f.insist(t, nc, id, wire.VerbReconfigure)
		f.await("a complaint", func() bool { return len(f.complained()) == i+1 })
		a.await(server.EventFailed, 2*i+2)
	}
}

// TestAComplaintIsRepeatedWithTheHours has nobody mend anything: what was said once may be
// forgotten.
func TestAComplaintIsRepeatedWithTheHours(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	clock := newClock()
	cfg := f.node("web1.example.net")
	cfg.Now = clock.now
	f.offersAlways("provision", "true")
	a := f.run(cfg)
	a.await(server.EventFailed, 2)
	if n := len(f.complained()); n != 1 {
		t.Errorf("%d complaints within the hour", n)
	}
	clock.advance(2 * time.Hour)
	f.await("another one", func() bool { return len(f.complained()) == 2 })
}

// TestARenewalThatCannotBeUsedIsSaid has a policy slip for a node of the fleet, and a disk
// that does not take what came.
func TestARenewalThatCannotBeUsedIsSaid(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		value string // of alive_interval
		why   string
		wrong func(t *testing.T, cfg server.Config, step string)
	}{
		"a slip": {"100ms", "want 1s to 24h", nil},
		"a disk": {"1m", "ca.pem", func(t *testing.T, cfg server.Config, step string) {
			t.Helper()
			if step == "wrote certificate.pem" { // something is in the way of the next file
				way := filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.next", ".ca.pem.new", "in the way")
				if err := os.MkdirAll(way, 0o755); err != nil {
					t.Error(err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			at, _ := f.member(t, cfg)
			given := make(chan *wire.Enrolled, 1)
			f.set(func() {
				f.renew = func(r *wire.RenewRequest) *wire.Reply {
					e := f.renewal(r)
					e.Configuration = map[string]string{"brokers": f.url(), "alive_interval": tt.value}
					e.Digest = wire.Digest(e.Certificate, e.Files)
					select {
					case given <- e:
					default: // the first is enough
					}
					return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: e}
				}
			})
			cfg = at(life * 3 / 4)
			if tt.wrong != nil {
				cfg.SetSteps(func(step string) { tt.wrong(t, cfg, step) })
			}
			f.run(cfg)
			f.wantComplaint(1, <-given, tt.why)
		})
	}
}

// TestANodeThatIsAstraySaysSo gives a node brokers that are not there: those of the token
// have it said why it is with them.
func TestANodeThatIsAstraySaysSo(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	l, _ := nowhere(t)
	_, a := f.strayNode(t, l.Addr().String())
	a.await(server.EventConnected, 1)
	f.await("a complaint", func() bool { return len(f.complained()) == 1 })
	confirmed := f.confirmations()[0]
	digest, why, _ := f.complained()[0].Unusable()
	if digest != confirmed.Digest || !strings.Contains(why, "no broker of the configuration was ever reached") {
		t.Errorf("complaint about %s: %q, want %s", digest, why, confirmed.Digest)
	}
	a.await(server.EventConnected, 3) // it looks for its own in between
	if n := len(f.complained()); n != 1 {
		t.Errorf("%d complaints about one thing", n)
	}
}

// TestWhoIsAstrayWaitsForWhoIsBusy has a provisioner be busy when a node says that it is astray: the whole
// fleet may say so at once, and would keep it busy.
func TestWhoIsAstrayWaitsForWhoIsBusy(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() {
		f.hears = func(a *wire.Applied) *wire.Reply {
			return refuse(wire.CodeBusy, time.Hour)(&wire.EnrollRequest{ID: a.ID})
		}
	})
	l, _ := nowhere(t)
	clock := newClock()
	looks := make(chan struct{}) // at the clock, by an agent that does its duties
	_, a := f.strayNodeWith(t, l.Addr().String(), func(cfg *server.Config) {
		cfg.Now = func() time.Time {
			select {
			case looks <- struct{}{}:
			default:
			}
			return clock.now()
		}
	})
	a.await(server.EventConnected, 1)
	f.await("a complaint", func() bool { return len(f.complained()) == 1 })
	for range 100 {
		<-looks
	}
	if n := len(f.complained()); n != 1 {
		t.Errorf("%d complaints to who is busy for an hour", n)
	}
	clock.advance(2 * time.Hour)
	f.await("another complaint", func() bool { return len(f.complained()) > 1 })
}
