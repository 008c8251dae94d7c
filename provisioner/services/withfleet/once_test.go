package services_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

// unsure loses writes and acknowledgements.
type unsure struct {
	services.Store
	put func(ctx context.Context, c *services.Certificate, after trust.Revision) (trust.Revision, error)
}

func (u *unsure) PutCertificate(ctx context.Context, c *services.Certificate, after trust.Revision,
) (trust.Revision, error) {
	return u.put(ctx, c, after)
}

var errKilled = errors.New("killed")

// another returns a second provisioner's service on the same store. Its index is empty, as if it lagged behind.
func (n *node) another(put func(st services.Store) *unsure) *services.Service {
	n.t.Helper()
	return services.New(services.Config{Provisioner: n.f.ProvisionerFor(n.f.Context(), nil),
		Store: put(n.f.Daemon().Store()), Issuing: new(atomic.Int64)})
}

// TestAtMostOneCertificateForEachKey asks 50 times at once on two provisioners, one of which loses writes and answers
// and is killed between signing and reply.
func TestAtMostOneCertificateForEachKey(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "")
	n := connected(t, f, web1)
	second := n.another(func(st services.Store) *unsure {
		return &unsure{st, func(ctx context.Context, c *services.Certificate, after trust.Revision,
		) (trust.Revision, error) {
			switch rand.N(4) {
			case 0:
				return 0, errKilled
			case 1:
				_, _ = st.PutCertificate(ctx, c, after)
				return 0, errKilled
			case 2:
				_, _ = st.PutCertificate(ctx, c, after)
				panic(errKilled)
			}
			return st.PutCertificate(ctx, c, after)
		}}
	})
	r := n.request("https", newKey(t), web1)
	var mu sync.Mutex
	serials := make(map[string]int)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			defer func() { _ = recover() }()
			s := second
			if i%2 == 0 {
				s = f.Daemon().Services()
			}
			for f.Context().Err() == nil {
				c, err := handle(f.Context(), s, r, web1)
				if err == nil {
					mu.Lock()
					serials[c.Serial]++
					mu.Unlock()
					return
				}
			}
		})
	}
	all.Wait()
	if len(serials) != 1 {
		t.Errorf("one key has the certificates %v, want one", serials)
	}
	f.Eventually("the list shows it", func() bool { return serials[n.listed("https").Serial] > 0 })
	f.Check()
}

// TestALostAcknowledgementIsNoSecondCertificate looks at one write: the certificate that was signed is the one on record.
func TestALostAcknowledgementIsNoSecondCertificate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "")
	n := connected(t, f, web1)
	var signed []string
	lost := 0
	s := n.another(func(st services.Store) *unsure {
		return &unsure{st, func(ctx context.Context, c *services.Certificate, after trust.Revision,
		) (trust.Revision, error) {
			signed = append(signed, c.Current.Serial)
			if lost++; lost < 3 { // nothing is written at first
				return 0, errKilled
			}
			_, err := st.PutCertificate(ctx, c, after)
			return 0, errors.Join(err, errKilled)
		}}
	})
	c, err := handle(f.Context(), s, n.request("https", newKey(t), web1), web1)
	if err != nil {
		t.Fatal(err)
	}
	for _, serial := range signed {
		if len(signed) != 3 || serial != c.Serial {
			t.Errorf("signed %v, want three times %s", signed, c.Serial)
		}
	}
	if !slices.ContainsFunc(f.Events(), func(e events.Event) bool {
		return e.Type == events.CertificateIssued && e.Serial == c.Serial
	}) {
		t.Error("no event says that it was issued")
	}
	if got := n.granted(n.request("https", newKey(t), web1)); got.Serial == c.Serial {
		t.Error("another key got the same certificate")
	}
	if code := n.code(&wire.CertificateRequest{ID: wire.NewID(), Identity: web1, Name: "none", Source: "file",
		Verb: wire.CertificateRevoke}); code != "" {
		t.Errorf("giving up what was never there: %s, want nothing", code)
	}
}
