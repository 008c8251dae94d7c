package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// driverEnv holds the job of a child process: this test binary, as a driver of simulated nodes.
const driverEnv = "MUSTER_CHAOS_DRIVER"

// A job is a driver's task.
type job struct {
	URL    string
	Dir    string // of the nodes' disks
	Groups []group
	Share  [2]int        // numbers n of this driver's nodes: n modulo the second is the first
	Slots  int           // concurrent connections
	Spread time.Duration // over which nodes start, so that a wave lasts

	BackoffMin, BackoffMax time.Duration
	Timeout                time.Duration // of one attempt
	TellCap                time.Duration // longest retry_after that is honored in full
}

// A group is nodes with one token.
type group struct {
	Name  string
	Token string
	Count int
	Uses  int // of the token; 0: unlimited
}

// identity returns the name of the group's i-th node.
func (g group) identity(i int) string { return fmt.Sprintf("%s%05d.chaos.test", g.Name, i) }

// wanted returns how many of the group's nodes can enroll.
func (g group) wanted() int {
	if g.Uses > 0 {
		return min(g.Uses, g.Count)
	}
	return g.Count
}

// Kinds of events.
const (
	kindEnrolled    = "enrolled"    // Text is the serial; the certificate is on the node's disk
	kindProvisioned = "provisioned" // confirmation acknowledged
	kindAlready     = "already"     // provisioned when the driver started
	kindRefused     = "refused"     // Text is the code
	kindBad         = "bad"         // the node got a wrong reply
)

// An event is a line that a driver prints.
type event struct {
	At   int64  `json:"at"` // milliseconds, Unix
	Kind string `json:"kind"`
	Node string `json:"node"`
	Text string `json:"text,omitempty"`
}

// runDriver drives a share of the nodes until all of them are provisioned or it is told to stop.
func runDriver(text string, out io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	events := make(chan event, 10_000)
	written := make(chan error, 1)
	go func() { written <- writeEvents(out, events) }()
	var nodes []*node
	for _, g := range j.Groups {
		for i := range g.Count {
			if i%j.Share[1] != j.Share[0] {
				continue
			}
			n, err := openNode(j, g.identity(i), g.Token, func(e event) {
				e.At = time.Now().UnixMilli()
				events <- e
			})
			if err != nil {
				return err
			}
			nodes = append(nodes, n)
		}
	}
	rand.Shuffle(len(nodes), func(i, k int) { nodes[i], nodes[k] = nodes[k], nodes[i] })
	slots := make(chan struct{}, j.Slots)
	var all sync.WaitGroup
	for i, n := range nodes {
		begin := time.NewTimer(j.Spread * time.Duration(i) / time.Duration(len(nodes)))
		all.Go(func() {
			select {
			case <-begin.C:
				n.run(ctx, slots)
			case <-ctx.Done():
			}
		})
	}
	all.Wait()
	close(events)
	return <-written
}

// writeEvents writes a line per event and flushes when there are no more.
func writeEvents(out io.Writer, events <-chan event) error {
	w := bufio.NewWriter(out)
	e := json.NewEncoder(w)
	for v := range events {
		if err := e.Encode(v); err != nil {
			return err
		}
		if len(events) == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// child runs the job of a child process, and reports whether this is one.
func child() bool {
	text := os.Getenv(driverEnv)
	if text == "" {
		return false
	}
	if err := runDriver(text, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
	}
	return true
}
