package broker_test

import (
	"testing"
	"time"

	"muster/provisioner/broker"
)

// TestWhoComesTooOftenHearsLate has machines with a wrong token be refused that come too often, at our broker and at a
// server outside: they hear of it, late, and whoever has a good token is admitted meanwhile.
func TestWhoComesTooOftenHearsLate(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		hearsLate(t, s, s.URL())
	})
	t.Run("outside", func(t *testing.T) {
		t.Parallel()
		o := newServer(t, nil)
		cfg := o.config(t)
		o.provisionerWith(t, broker.ExternalConfig{URLs: o.url, Keys: o.keys, Gate: cfg.Gate, Refused: cfg.Refused})
		hearsLate(t, o.site, o.url)
	})
}

func hearsLate(t *testing.T, s *site, url string) {
	const refused = "-ERR 'Authorization Violation'"
	if _, said := come(t, url, "wrong", "127.0.0.1"); said != refused {
		t.Fatalf("a wrong token is told %q, want %q", said, refused)
	}
	s.mu.Lock()
	s.late = true
	s.mu.Unlock()
	type end struct {
		said string
		took time.Duration
	}
	const some = 3
	ends := make(chan end, some)
	for range some {
		go func() {
			begun := time.Now()
			_, said := come(t, url, "wrong", "127.0.0.1")
			ends <- end{said, time.Since(begun)}
		}()
	}
	if _, said := come(t, url, goodToken, "127.0.0.1"); said != "" {
		t.Errorf("a good token from the same address is told %q", said)
	}
	for range some {
		if e := receive(t, "a refusal", ends); e.said != refused || e.took < broker.RefusalPause {
			t.Errorf("a wrong token is told %q after %v, want %q after %v or more", e.said, e.took, refused, broker.RefusalPause)
		}
	}
}
