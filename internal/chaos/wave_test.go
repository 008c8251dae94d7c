package chaos_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// A wave is nodes that enroll at once, in their own processes.
type wave struct {
	t       *testing.T
	dir     string // the nodes' disks are in dir/nodes
	job     job
	shares  int      // processes
	prefix  []string // runs the drivers, for example in their own network
	drivers []*process

	told        map[string][]string // serials that a node got, by identity
	provisioned map[string]bool
	refused     map[string]int // by code
	times       []int64        // of provisioning, in milliseconds
	bad         []string       // wrong replies
}

func newWave(t *testing.T, dir string, shares int, j job) *wave {
	t.Helper()
	j.Dir = filepath.Join(dir, "nodes")
	if err := os.MkdirAll(j.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &wave{
		t:           t,
		dir:         dir,
		job:         j,
		shares:      shares,
		told:        map[string][]string{},
		provisioned: map[string]bool{},
		refused:     map[string]int{},
	}
}

// start starts the drivers, which continue from the nodes' disks.
func (w *wave) start() {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	w.drivers = nil
	for i := range w.shares {
		j := w.job
		j.Share = [2]int{i, w.shares}
		b, err := json.Marshal(j)
		if err != nil {
			w.t.Fatal(err)
		}
		p := start(w.t, w.dir, fmt.Sprintf("driver%d", i), []string{driverEnv + "=" + string(b)},
			append(slices.Clone(w.prefix), self)...)
		w.drivers = append(w.drivers, p)
	}
}

// kill kills the drivers, and with them all nodes at once. What they said before
// is taken into account first.
func (w *wave) kill() {
	for _, p := range w.drivers {
		p.kill()
	}
	w.listen()
}

// listen takes in what the drivers have said since.
func (w *wave) listen() {
	for _, p := range w.drivers {
		p.mu.Lock()
		b := p.out.Bytes()
		whole := bytes.LastIndexByte(b, '\n') + 1
		lines := bytes.Clone(b[:whole])
		p.out.Next(whole)
		p.mu.Unlock()
		for line := range bytes.Lines(lines) {
			var e event
			if json.Unmarshal(line, &e) != nil {
				w.bad = append(w.bad, p.name+": "+string(line)) // a driver's own trouble
				continue
			}
			w.note(e)
		}
	}
}

func (w *wave) note(e event) {
	switch e.Kind {
	case kindEnrolled:
		if !slices.Contains(w.told[e.Node], e.Text) {
			w.told[e.Node] = append(w.told[e.Node], e.Text)
		}
	case kindProvisioned:
		w.times = append(w.times, e.At)
		w.provisioned[e.Node] = true
	case kindAlready:
		w.provisioned[e.Node] = true
	case kindRefused:
		w.refused[e.Text]++
	case kindBad:
		w.bad = append(w.bad, e.Node+": "+e.Text)
	}
}

// wanted is how many nodes get in.
func (w *wave) wanted() int {
	sum := 0
	for _, g := range w.job.Groups {
		sum += g.wanted()
	}
	return sum
}

// waitFor waits until so many nodes are provisioned.
func (w *wave) waitFor(n int) {
	w.t.Helper()
	last, since := -1, time.Now()
	again := time.NewTicker(tick)
	defer again.Stop()
	for range again.C {
		w.listen()
		if len(w.provisioned) >= n {
			return
		}
		if w.t.Failed() { // a supervised process has ended for good
			w.t.FailNow()
		}
		if len(w.provisioned) != last {
			last, since = len(w.provisioned), time.Now()
		}
		if time.Since(since) > patience {
			for _, p := range w.drivers {
				p.signal(syscall.SIGQUIT) // its log shows every goroutine
				<-p.done
			}
			w.t.Fatalf("%d of %d nodes are provisioned, and none more for %v; refused: %v", last, n, patience,
				w.refused)
		}
	}
}

// part waits until this part of the wave is provisioned.
func (w *wave) part(of float64) { w.t.Helper(); w.waitFor(int(of * float64(w.wanted()))) }

// finish waits until all nodes that can are provisioned, and stops the drivers: nodes without a use would try
// forever.
func (w *wave) finish() {
	w.t.Helper()
	w.waitFor(w.wanted())
	for _, p := range w.drivers {
		p.kill()
	}
	w.listen()
	for _, text := range w.bad {
		w.t.Error(text)
	}
}
