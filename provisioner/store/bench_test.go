package store_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/store"
)

// cpu returns the CPU time of this process, which includes the broker.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spent reports the CPU time per operation since then.
func spent(b *testing.B, then time.Duration) {
	b.Helper()
	b.ReportMetric(float64((cpu(b)-then).Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
}

// enrolled returns a record of 2 KB, as of an enrolled node.
func enrolled(id wire.Identity) *provisioner.Record {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	der := make([]byte, 620)
	_, _ = rand.Read(der)
	hash := strings.Repeat("5b1f", 16)
	return &provisioner.Record{
		Schema: provisioner.RecordSchema, Identity: id, State: provisioner.StateEnrolled, Attempt: wire.NewID(),
		Lineage: []string{hash},
		Next: &provisioner.Issued{Serial: hash[:32], KeyHash: hash, DER: der, NotBefore: at,
			NotAfter: at.Add(time.Hour), Digest: hash, OfferedAt: at},
		Token: "0f1e2d3c4b5a69780f1e2d3c4b5a6978", Signer: "ed25519:0f1e2d3c4b5a6978", Site: "ams1", Source: "10.1.2.3",
		OwnedSince: at,
		Terms: []byte(`{"chs":true,"chu":"nats://broker.example.net:4222","ou":"choria",` +
			`"purpose":"choria_provisioning"}`),
		Agent: "muster-server 1.0", Boot: wire.NewID(),
		Decision:        provisioner.Decided{Reason: provisioner.ReasonNew, Policy: hash, Allowed: "policy"},
		FirstEnrolledAt: at, UpdatedAt: at,
	}
}

// BenchmarkPut writes records of new identities, single or batched, with that many writers. told makes the writers
// known to the store.
func BenchmarkPut(b *testing.B) {
	for _, writers := range []int{1, 8, 16, 64, 256} {
		for _, how := range []string{"single", "gathered", "told"} {
			b.Run(fmt.Sprintf("writers=%d/%s", writers, how), func(b *testing.B) {
				s, _ := start(b, b.TempDir())
				var inHand atomic.Int64
				cfg := store.Config{Conn: s.conn, CAFingerprint: ours}
				if how == "told" {
					cfg.InHand = &inHand
				}
				st, err := store.Open(s.ctx, cfg)
				if err != nil {
					b.Fatal(err)
				}
				if how == "single" {
					st.Single()
				}
				inHand.Add(int64(writers))
				var next atomic.Int64
				var running sync.WaitGroup
				r := *enrolled(web1)
				b.ReportAllocs()
				b.ResetTimer()
				then := cpu(b)
				for range writers {
					running.Go(func() {
						defer inHand.Add(-1)
						r := r
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							r.Identity = wire.Identity(fmt.Sprintf("node%d.example.net", i))
							if _, err := st.Put(s.ctx, &r, 0); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				running.Wait()
				spent(b, then)
			})
		}
	}
}

// BenchmarkRecord reads records of enrolled nodes.
func BenchmarkRecord(b *testing.B) {
	st, s := newStore(b)
	if _, err := st.Put(s.ctx, enrolled(web1), 0); err != nil {
		b.Fatal(err)
	}
	for name, id := range map[string]wire.Identity{"found": web1, "none": web2} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			then := cpu(b)
			for b.Loop() {
				if _, _, err := st.Record(s.ctx, id); err != nil {
					b.Fatal(err)
				}
			}
			spent(b, then)
		})
	}
}

// BenchmarkEmit emits the event of an enrolled node until it is in the stream.
func BenchmarkEmit(b *testing.B) {
	st, s := newStore(b)
	r := enrolled(web1)
	e := events.Event{
		Type: events.Enrolled, Time: r.UpdatedAt, Node: string(web1), Serial: r.Next.Serial, Digest: r.Next.Digest,
		Reason: string(r.Decision.Reason),
		Token:  r.Token, Signer: r.Signer, Site: r.Site, Source: r.Source, Attempt: r.Attempt,
		Policy: r.Decision.Policy,
	}
	b.ReportAllocs()
	then := cpu(b)
	for b.Loop() {
		st.Emit(e)
	}
	e.Type = events.Renewed
	s.emitted(b, st, e)
	spent(b, then)
}
