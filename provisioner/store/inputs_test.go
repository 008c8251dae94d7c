package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"muster/policies"
	"muster/provisioner/store"
)

// seen returns an input with that many bytes of facts.
func seen(i, facts int) *policies.Input {
	name := fmt.Sprintf("web%d.example.net", i)
	return &policies.Input{
		Identity: name, CSR: policies.CSR{CommonName: name, DNSNames: []string{name}},
		Token: policies.Token{ID: "t1", Org: "choria"},
		Facts: []byte(`{"role":"web","serial":"` + fmt.Sprintf("%x", i*7919) + `","list":"` +
			strings.Repeat("mtu 1500 up broadcast ", facts/22) + `"}`),
		Node: policies.Node{State: "none", Reason: "new"}, Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
}

// recordings reads the stored inputs of the last hour, and the number of batches.
func recordings(t testing.TB, s *site, st *store.Store) (all []policies.Recording, batches uint64) {
	t.Helper()
	var b bytes.Buffer
	if err := st.ReadInputs(s.ctx, time.Hour, func(n uint64) { batches = n }, &b); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if line == "\n" {
			continue
		}
		var r policies.Recording
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all, batches
}

// TestDecisionsAreRecorded expects each observed decision once, in far fewer messages, without secrets.
func TestDecisionsAreRecorded(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	if all, batches := recordings(t, s, st); len(all) != 0 || batches != 0 {
		t.Errorf("at first: %d recordings in %d batches", len(all), batches)
	}
	r, err := store.NewRecorder(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	for i := range n {
		in := seen(i, 200)
		in.Token.Extensions = []byte(`{"password":"hunter2"}`)
		r.Observe(in, &policies.Decision{Allow: true, Digest: "p1", Configuration: map[string]string{"a": "hunter2"}},
			nil, "p1")
	}
	stopped, stop := context.WithCancel(s.ctx)
	stop() // it still writes the queue
	if err := r.Run(stopped, func() *store.Store { return st }); err != nil {
		t.Fatal(err)
	}
	if err := s.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if recorded, dropped := r.Counts(); recorded != n || dropped != 0 {
		t.Errorf("recorded %d, dropped %d, want %d and 0", recorded, dropped, n)
	}
	all, batches := recordings(t, s, st)
	for len(all) < n && s.ctx.Err() == nil { // not acknowledged
		all, batches = recordings(t, s, st)
	}
	if len(all) != n || batches == 0 || batches > n/100 {
		t.Fatalf("%d recordings in %d batches, want %d in at most %d", len(all), batches, n, n/100)
	}
	for i, got := range all {
		if got.Input.Identity != fmt.Sprintf("web%d.example.net", i) || got.Verdict != policies.VerdictAllow ||
			got.Policy != "p1" || !got.Redacted {
			t.Fatalf("recording %d = %+v", i, got)
		}
		if b, _ := json.Marshal(got); bytes.Contains(b, []byte("hunter2")) {
			t.Fatalf("recording %d has a secret: %s", i, b)
		}
	}
}

// TestFullRecorderDropsDecisions fills the queue, by number or bytes, without a running recorder: further decisions are
// dropped and counted.
func TestFullRecorderDropsDecisions(t *testing.T) {
	t.Parallel()
	for name, facts := range map[string]int{"by number": 22, "by bytes": 30 << 10} {
		r, err := store.NewRecorder(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		in := seen(1, facts)
		for range 10_000 {
			r.Observe(in, &policies.Decision{}, nil, "p1")
		}
		_, dropped := r.Counts()
		if dropped < 1000 || dropped > 9900 {
			t.Errorf("%s: %d of 10000 dropped, want some and not nearly all", name, dropped)
		}
		done, stop := context.WithCancel(t.Context())
		stop()
		if err := r.Run(done, func() *store.Store { return nil }); err != nil {
			t.Fatal(err)
		}
		if recorded, all := r.Counts(); recorded != 0 || all != 10_000 {
			t.Errorf("%s: without a store %d recorded, %d dropped, want 0 and all 10000", name, recorded, all)
		}
	}
}

// BenchmarkObserve is the cost of recording to a request; BenchmarkRecordInputs that to the machine, broker included.
func BenchmarkObserve(b *testing.B) {
	r, err := store.NewRecorder(slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, func() *store.Store { return nil }) }()
	in, d := seen(1, 2<<10), &policies.Decision{Allow: true}
	b.ReportAllocs()
	for b.Loop() {
		r.Observe(in, d, nil, "p1")
	}
	b.StopTimer()
	stop()
	<-ended
}

// BenchmarkRecordInputs writes decisions with 2 KB and 20 KB of facts.
func BenchmarkRecordInputs(b *testing.B) {
	for _, facts := range []int{2 << 10, 20 << 10} {
		b.Run(fmt.Sprintf("%dKiB", facts>>10), func(b *testing.B) {
			st, s := newStore(b)
			r, err := store.NewRecorder(slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			stopped, stop := context.WithCancel(s.ctx)
			stop()
			d := &policies.Decision{Allow: true, Digest: "p1"}
			then := cpu(b)
			for i := 0; i < b.N; {
				for range min(500, b.N-i) {
					r.Observe(seen(i, facts), d, nil, "p1")
					i++
				}
				if err := r.Run(stopped, func() *store.Store { return st }); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.conn.Flush(); err != nil {
				b.Fatal(err)
			}
			spent(b, then)
		})
	}
}
