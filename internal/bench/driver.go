package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/jwt"
)

// sharedLinks is how many connections a driver uses for all of its nodes where
// they are shared; chosen, enough for both cores to have some in hand.
const sharedLinks = 16

// An Order is what one driver process has to do: JSON on its standard input,
// followed by a line of any content when the clock starts. Its standard output
// is a line of [Report] each.
type Order struct {
	URL         string  `json:"url"`
	Token       string  `json:"token"` // sealed connections and requests if it says so
	Run         string  `json:"run"`   // part of all names, so that no two runs share any
	First       int     `json:"first"` // number of the first node
	Step        int     `json:"step"`  // to the next
	Nodes       int     `json:"nodes"`
	Concurrency int     `json:"concurrency"`
	Shared      bool    `json:"shared"`
	TLS         bool    `json:"tls"`
	Applied     bool    `json:"applied"`
	FactsBytes  int     `json:"facts_bytes"`
	Rate        float64 `json:"rate"`     // nodes a second of this driver, 0 is as fast as it goes
	Offset      int64   `json:"offset"`   // nanoseconds from the start of the clock to the first node, with Rate
	Duration    int64   `json:"duration"` // nanoseconds after which no node begins, 0 is no bound
	Stay        bool    `json:"stay"`     // nodes connect to the fleet afterwards, and stay until the input ends
	Kick        bool    `json:"kick"`     // with Stay: it is reported who is back that was told to reprovision, and an outcome of that at the end
	Profile     string  `json:"profile"`  // file for a CPU profile of the driver
}

// A Report is one line of a driver.
type Report struct {
	Prepared  int      `json:"prepared,omitempty"`  // nodes made so far
	Ready     bool     `json:"ready,omitempty"`     // it waits for the clock to start
	Done      int      `json:"done,omitempty"`      // nodes finished so far
	Ended     bool     `json:"ended,omitempty"`     // the clock may stop
	Outcome   *Outcome `json:"outcome,omitempty"`   // last line, unless nodes stay
	Connected int      `json:"connected,omitempty"` // nodes in the fleet so far
	Settled   bool     `json:"settled,omitempty"`   // all of them are
	Back      int      `json:"back,omitempty"`      // nodes in the fleet again that were told to reprovision
}

// An Outcome is what became of a driver's nodes.
type Outcome struct {
	Nodes       int               `json:"nodes"`       // that began
	Enrolled    int               `json:"enrolled"`    // got what they must get
	Provisioned int               `json:"provisioned"` // of them: confirmed, and that is on record
	Refused     int               `json:"refused"`     // for good
	Failed      int               `json:"failed"`      // got nothing, or not what they must get
	Why         []string          `json:"why"`         // the first few of refusals and failures
	Refusals    map[wire.Code]int `json:"refusals"`    // replies, by code
	Broken      int               `json:"broken"`      // connections that could not be made or ended
	Unanswered  int               `json:"unanswered"`  // requests without a reply in time
	Crossed     int               `json:"crossed"`     // replies to somebody else's request, see errCrossed
	Start       int64             `json:"start"`       // clock, Unix nanoseconds
	End         int64             `json:"end"`         // the last node that got through
	CPU         int64             `json:"cpu"`         // nanoseconds between the two
	Latencies   []byte            `json:"latencies"`   // of nodes that got through: microseconds, 32 bits each, little endian
}

// driver plays nodes.
type driver struct {
	order    Order
	address  string // of the broker
	host     string // its name
	secure   *tls.Config
	sealed   bool
	sealKey  seal.PublicKey
	pin      string // of the root, empty if the token says nothing
	facts    json.RawMessage
	template *template
	links    []*sharedLink // empty for a connection per node
	nodes    []*node

	begun atomic.Int64
	done  atomic.Int64

	mu        sync.Mutex
	outcome   Outcome  // guarded by mu
	latencies []uint32 // guarded by mu
}

// Drive is one driver process: it reads an [Order] from in, makes its nodes,
// waits for the second line, plays the nodes and reports to out. It ends early
// when ctx does or in ends.
func Drive(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	d := &driver{}
	if err := json.Unmarshal(line, &d.order); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if err := d.setUp(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reports := json.NewEncoder(out)
	var prepared atomic.Int64
	stop := every(ctx, func() { _ = reports.Encode(Report{Prepared: int(prepared.Load())}) }) // who does not listen has gone
	err = d.prepare(ctx, func() { prepared.Add(1) })
	stop()
	if err != nil {
		return fmt.Errorf("make nodes: %w", err)
	}
	collect := d.holdGarbage()
	if err := reports.Encode(Report{Prepared: len(d.nodes), Ready: true}); err != nil {
		return err
	}
	if _, err := lines.ReadBytes('\n'); err != nil {
		return fmt.Errorf("wait for the clock: %w", err)
	}
	go func() { // whoever gave the order is gone when in ends
		_, _ = lines.ReadBytes('\n')
		cancel()
	}()
	if err := d.play(ctx, reports); err != nil {
		return err
	}
	collect()
	d.verify(ctx)
	d.outcome.Latencies = encodeLatencies(d.latencies)
	if err := reports.Encode(Report{Outcome: &d.outcome}); err != nil || !d.order.Stay {
		return err
	}
	return d.stay(ctx, reports)
}

// garbageRoom is how much memory a driver takes before it collects its garbage by
// the clock in an open loop, and touchedPerNode how much it has touched before for each
// node, up to touchedAtMost. Chosen: a node takes 27 kB (measured), so that the 30 s of
// the standard table at 167,000 a minute take 2.4 GB, beside what is alive. With 1.5 GiB at
// most, the machines had new memory from the 25th second on, took up to 0.5 of a core in
// place of 0.3, and made the queue that they measured, up to a second long (measured).
const (
	garbageRoom    = 4 << 30
	touchedAtMost  = garbageRoom / 4 * 3
	touchedPerNode = 28 << 10
)

// holdGarbage has an open loop's driver collect what making nodes has left, and then no
// more until collect is called or [garbageRoom] is taken: it is thousands of machines in
// one process, and would else stop them all for 50 ms at a time, which real ones never
// do (measured: half of all stalls were those). Nor do they take 40 MB of new memory a second
// together, 16,000 faults of pages, so it has had its memory before. In a closed loop
// nobody waits for its machines, and memory that is new costs more than to collect.
func (d *driver) holdGarbage() (collect func()) {
	if d.order.Rate == 0 {
		return func() {}
	}
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(garbageRoom)
	memory := make([]byte, min(touchedAtMost, len(d.nodes)*touchedPerNode))
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	runtime.GC() // memory is free again, and stays with the process
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// every calls f a few times a second until stop is called, which waits for the
// last.
func every(ctx context.Context, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// setUp makes what all nodes share.
func (d *driver) setUp() error {
	u, err := url.Parse(d.order.URL)
	if err != nil || u.Host == "" {
		return fmt.Errorf("url %q: want nats://host:port", d.order.URL)
	}
	address, err := net.ResolveTCPAddr("tcp", u.Host) // once, not for each node
	if err != nil {
		return err
	}
	d.address, d.host = address.String(), u.Hostname()
	t, err := jwt.Peek(d.order.Token)
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	d.pin = t.Limits.CA
	if t.Limits.Seal != "" {
		d.sealed = true
		if d.sealKey, err = seal.ParsePublicKey(t.Limits.Seal); err != nil {
			return fmt.Errorf("token: %w", err)
		}
	}
	if d.order.TLS {
		d.secure = brokerTLS(d.host, d.pin)
	}
	d.facts = makeFacts(d.order.FactsBytes)
	if d.template, err = newTemplate(d.order.Token, d.facts); err != nil {
		return err
	}
	d.outcome.Refusals = map[wire.Code]int{}
	if !d.order.Shared {
		return nil
	}
	for range min(sharedLinks, d.order.Concurrency) {
		c, err := d.newCredentials()
		if err != nil {
			return err
		}
		d.links = append(d.links, &sharedLink{credentials: c})
	}
	return nil
}

// play runs the clock.
func (d *driver) play(ctx context.Context, reports *json.Encoder) error {
	if d.order.Profile != "" {
		f, err := os.Create(d.order.Profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // a profile that is cut short says so itself
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	stop := every(ctx, func() { _ = reports.Encode(Report{Done: int(d.done.Load())}) })
	start, cpu := time.Now(), ownCPU()
	if d.order.Rate > 0 {
		d.open(ctx, start)
	} else {
		d.closed(ctx, start)
	}
	d.outcome.CPU = ownCPU() - cpu
	d.outcome.Start = start.UnixNano()
	d.outcome.Nodes = int(min(d.begun.Load(), int64(len(d.nodes))))
	stop()
	for _, l := range d.links {
		l.drop(nil)
	}
	return errors.Join(ctx.Err(), reports.Encode(Report{Done: int(d.done.Load()), Ended: true}))
}

// ownCPU is what this process has used, in nanoseconds.
func ownCPU() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail with these arguments
	return u.Utime.Nano() + u.Stime.Nano()
}

// replaceMark puts an identity in its places.
func replaceMark(facts json.RawMessage, identity string) string {
	return strings.ReplaceAll(string(facts), marks[holeIdentity], identity)
}
