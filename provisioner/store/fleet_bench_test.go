package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/broker"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/services"
)

// fleetNodes is the number of stored nodes.
const fleetNodes = 100_000

// BenchmarkFleet asks operators' questions about 100,000 nodes, each enrolled, refused and started; one was refused for
// weeks. A first page, history or explain should take less than 100 ms. filled is the time to read all records at the
// start.
func BenchmarkFleet(b *testing.B) {
	s, _ := startWith(b, broker.Config{StoreDir: b.TempDir(), Unsynced: true})
	st := s.open(b, ours)
	s.fill(b, fleetNodes)
	noisy := node(fleetNodes / 2)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	emit := func(id wire.Identity, types ...events.Type) {
		for _, t := range types {
			st.Emit(events.Event{Type: t, Time: at, Node: string(id), Serial: "5b1f", Code: wire.CodeDenied,
				Cause: "as the policy says", Source: "10.1.2.3"})
		}
	}
	for i := range fleetNodes {
		id := node(i)
		emit(id, events.Enrolled, events.Provisioned, events.Refused, events.Attempt)
		for _, t := range []string{"startup", "alive"} {
			if err := s.conn.Publish(wire.EventSubject(id, t),
				[]byte(`{"time":"2026-03-01T12:00:00Z","data":{"serial":"5b1f"}}`)); err != nil {
				b.Fatal(err)
			}
		}
		if i%10 == 0 {
			emit(noisy, events.Refused)
		}
	}
	s.emitted(b, st, events.Event{Type: events.Granted, Time: at, Node: string(noisy)})
	x := fleet.NewIndex(st, slog.New(slog.DiscardHandler), nil)
	one := fleet.NewInspector(st, x, &services.Index{})
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- x.Run(ctx) }()
	if p, err := x.List(s.ctx, fleet.Query{}); err != nil || p.Total != fleetNodes {
		b.Fatalf("list: %+v, %v", p, err)
	}
	filled := time.Since(began)
	var none fleet.Foresee // approves no node
	for name, ask := range map[string]func(i int) error{
		"first page": func(int) error { _, err := x.List(s.ctx, fleet.Query{}); return err },
		"show":       func(i int) error { _, err := one.Report(s.ctx, node(i), time.Now()); return err },
		"history":    func(i int) error { _, err := one.History(s.ctx, node(i)); return err },
		"explain":    func(i int) error { _, err := one.Explain(s.ctx, node(i), at, none); return err },
		"noisy":      func(int) error { _, err := one.Explain(s.ctx, noisy, at, none); return err },
		"unknown": func(i int) error {
			if _, err := one.History(s.ctx, wire.Identity(fmt.Sprintf("unknown%d.example.net", i))); err == nil {
				return fmt.Errorf("node %d is known", i)
			}
			return nil
		},
	} {
		b.Run(name, func(b *testing.B) {
			then := cpu(b)
			for i := 0; b.Loop(); i++ {
				if err := ask(i * 7919 % fleetNodes); err != nil {
					b.Fatal(err)
				}
			}
			spent(b, then)
			b.ReportMetric(filled.Seconds(), "filled-s")
		})
	}
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
