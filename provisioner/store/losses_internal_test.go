package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// TestLossBehindAnIndexIsReported flips a byte of a record and of a claim while nats-server is stopped in order. Its
// index counts both after the start. Every reading that lacks one says so, and [Store.CheckWatermark] after it.
func TestLossBehindAnIndexIsReported(t *testing.T) {
	t.Parallel()
	const token = jwt.TokenID("00112233445566778899aabbccddeeff")
	record := func(id wire.Identity) *provisioner.Record {
		return &provisioner.Record{Schema: provisioner.RecordSchema, Identity: id, State: provisioner.StateRetired,
			Attempt: "of " + string(id), UpdatedAt: time.Now()}
	}
	claim := func(attempt string) *trust.ClaimEntry {
		return &trust.ClaimEntry{Schema: trust.ClaimSchema,
			Claims: []trust.TokenClaim{{Key: "k", Identity: "web1", Attempt: attempt, At: time.Now()}}}
	}
	for name, tt := range map[string]struct {
		stream, lost string
		read         func(context.Context, *Store) error // nil: the opening
		standing     bool                                // CheckWatermark repeats it
	}{
		"the opening, of claims": {streamClaims, "second claim", nil, false},
		"a token's claims": {streamClaims, "second claim", func(ctx context.Context, s *Store) error {
			return s.Claims(ctx, token, 0, func(*trust.ClaimEntry, trust.Revision) error { return nil })
		}, true},
		"all claims": {streamClaims, "second claim", func(ctx context.Context, s *Store) error {
			return s.AllClaims(ctx, func(jwt.TokenID, *trust.ClaimEntry, trust.Revision) error { return nil })
		}, false},
		"a backup": {streamNodes, "of web2", func(ctx context.Context, s *Store) error {
			return s.Export(ctx, func(string, uint64, string, []byte) error { return nil })
		}, false},
		"the list of nodes": {streamNodes, "of web2", func(ctx context.Context, s *Store) error {
			ctx, stop := context.WithCancelCause(ctx)
			err := s.FollowRecords(ctx, func(wire.Identity, []byte, trust.Revision) {},
				func(*provisioner.Brief, trust.Revision) {}, func(err error) { stop(err) })
			return errors.Join(err, context.Cause(ctx))
		}, true},
		"a name that reads as new": {streamNodes, "of web2", func(ctx context.Context, s *Store) error {
			if r, _, err := s.Record(ctx, "web2"); r != nil || err != nil {
				t.Errorf("record = %v, %v", r, err)
			}
			if _, err := s.Put(ctx, record("web2"), 0); !errors.Is(err, trust.ErrConflict) {
				t.Errorf("Put = %v, want %v", err, trust.ErrConflict)
			}
			return s.losses.check(ctx)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dir := t.TempDir()
			srv := serve(t, dir, -1)
			nc, _ := dial(t, srv.ClientURL())
			s, err := Open(ctx, Config{Conn: nc, CAFingerprint: "ca"})
			if err != nil {
				t.Fatal(err)
			}
			last := trust.Revision(0)
			for _, text := range []string{"first", "second", "third"} {
				if last, err = s.AppendClaims(ctx, token, claim(text+" claim"), last); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range []wire.Identity{"web1", "web2", "web3"} {
				if _, err := s.Put(ctx, record(id), 0); err != nil {
					t.Fatal(err)
				}
			}
			nc.Close()
			stopServer(srv)
			flip(t, filepath.Join(dir, "jetstream/$G/streams", tt.stream, "msgs/1.blk"), tt.lost)
			nc, js := dial(t, serve(t, dir, -1).ClientURL())
			s, err = Open(ctx, Config{Conn: nc, CAFingerprint: "ca"})
			if tt.stream == streamClaims {
				if !errors.Is(err, ErrDamaged) {
					t.Fatalf("Open = %v, want %v", err, ErrDamaged)
				}
				c := newClient(js, Config{Conn: nc, Timeout: 10 * time.Second, Replicas: 1, Log: nil}.withDefaults())
				if err := c.makeStreams(ctx, Config{}); err != nil {
					t.Fatal(err)
				}
				s = &Store{client: c}
			} else if err != nil {
				t.Fatal(err)
			}
			if tt.read == nil {
				return
			}
			if err := tt.read(ctx, s); !errors.Is(err, ErrDamaged) {
				t.Errorf("%v, want %v", err, ErrDamaged)
			}
			if err := s.losses.check(ctx); errors.Is(err, ErrDamaged) != tt.standing {
				t.Errorf("standing: %v, want %v", err, tt.standing)
			}
		})
	}
}

func flip(t *testing.T, block, text string) {
	t.Helper()
	b, err := os.ReadFile(block)
	if err == nil {
		b[bytes.Index(b, []byte(text))] ^= 0x20
		err = os.WriteFile(block, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
