package server_test

import (
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// onComplaint handles a node's report that its reply is unusable.
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
	f.reply(m, a.Identity, answer(a))
}

// complained returns the reports so far.
func (f *fleet) complained() []*wire.Applied {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.complaints)
}

// wantComplaint waits for the n-th report, about e, signed by its key, with the reason why.
func (f *fleet) wantComplaint(n int, e *wire.Enrolled, why string) {
	f.tb.Helper()
	f.await("a complaint", func() bool { return len(f.complained()) >= n })
	a := f.complained()[n-1]
	digest, said, _ := a.Unusable()
	if digest != e.Digest || a.Serial != e.Serial || !strings.Contains(said, why) {
		f.tb.Errorf("complaint about %s with %s: %q, want %s with %s: %q", a.Serial, digest, said, e.Serial, e.Digest,
			why)
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

// offersAlways answers each request of a node with that setting. The reply is sent to the channel once it is made.
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

// The node reports an unusable configuration once, without the value, and goes on when it is corrected.
func TestAnUnusableConfigurationIsReported(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*wire.Applied) *wire.Reply{
		"to a provisioner": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.set(func() { f.hears = answer })
			given := f.offersAlways("alive_interval", "1s3cret")
			a := f.run(f.node("web1.example.net"))
			f.wantComplaint(1, <-given, "alive_interval: is \"…\"")
			a.await(server.EventFailed, 1)
			if said := f.complained()[0].Digest; strings.Contains(said, "s3cret") {
				t.Errorf("a value is told: %s", said)
			}
			f.set(func() { f.enroll = nil })
			a.await(server.EventConfirmed, 1)
		})
	}
}
