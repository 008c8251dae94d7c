package store_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner/store"
)

// largeVar is the environment variable with the number of records of BenchmarkLargeStore. A million take 2.3 GB of disk
// and some minutes.
const largeVar = "MUSTER_BENCH_RECORDS"

// BenchmarkLargeStore writes records by turns into a large and an empty store, so that both suffer alike from other
// load. It also reports the time and memory to open the large store.
func BenchmarkLargeStore(b *testing.B) {
	records := 20_000
	if text := os.Getenv(largeVar); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			b.Fatalf("%s=%s: want a number above 0", largeVar, text)
		}
		records = n
	}
	dir := b.TempDir()
	s, stop := start(b, dir)
	s.open(b, ours)
	s.fill(b, records)
	stop()

	before := memory()
	opening := time.Now()
	large, _ := start(b, dir)
	stores := map[string]*store.Store{"large": large.gathering(b, false)}
	opened := time.Since(opening)
	held := memory() - before
	empty, _ := start(b, b.TempDir())
	stores["empty"] = empty.gathering(b, false)

	spend := map[string]time.Duration{}
	took := map[string]time.Duration{}
	var written int64
	for b.Loop() {
		for name, st := range stores {
			then, began := cpu(b), time.Now()
			var writers sync.WaitGroup
			for i := range int64(crowd) {
				writers.Go(func() {
					r := enrolled(node(records + int(written+i)))
					if _, err := st.Put(large.ctx, r, 0); err != nil {
						b.Error(err)
					}
				})
			}
			writers.Wait()
			spend[name] += cpu(b) - then
			took[name] += time.Since(began)
		}
		written += crowd
	}
	for name := range stores {
		b.ReportMetric(float64(spend[name].Microseconds())/float64(written), "cpu-µs/"+name)
		b.ReportMetric(float64(took[name].Microseconds())/float64(written), "µs/"+name)
	}
	// Old records are in other blocks, which the broker reads whole and keeps in memory for 10 s.
	const reads = 2000
	then := cpu(b)
	for range reads {
		if _, _, err := stores["large"].Record(large.ctx, node(rand.IntN(records))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu(b)-then).Microseconds())/reads, "cpu-µs/read")
	b.ReportMetric(float64(memory()-before)/(1<<20), "MB/heap-read")
	b.ReportMetric(opened.Seconds(), "s/open")
	b.ReportMetric(float64(held)/(1<<20), "MB/heap")
}

// memory returns the size of the heap.
func memory() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// fill writes the first records of that many identities, in the largest batches.
func (s *site) fill(b *testing.B, records int) {
	b.Helper()
	const size = 1000
	var next atomic.Int64
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for from := int(next.Add(size)) - size; from < records; from = int(next.Add(size)) - size {
				to := min(from+size, records)
				id := wire.NewID()
				for i := from; i < to; i++ {
					data, err := json.Marshal(enrolled(node(i)))
					m := &nats.Msg{Subject: "muster.node." + node(i).SubjectToken(), Data: data, Header: nats.Header{}}
					m.Header.Set("Nats-Batch-Id", id)
					m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i-from+1))
					switch {
					case err != nil:
					case i < to-1:
						err = s.conn.PublishMsg(m)
					default:
						m.Header.Set("Nats-Batch-Commit", "1")
						_, err = s.js.PublishMsg(s.ctx, m, jetstream.WithRetryAttempts(0))
					}
					if err != nil {
						b.Error(fmt.Errorf("fill: %w", err))
						return
					}
				}
			}
		})
	}
	writers.Wait()
	st := s.open(b, ours)
	r, _, err := st.Record(s.ctx, node(records-1))
	if err != nil || r == nil {
		b.Fatalf("fill: the last record is %v, %v", r, err)
	}
}
