package chaos_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A run is one fault with its deployment, wave of nodes and checks.
type run struct {
	*testing.T
	dir  string
	seed uint64
	rand *rand.Rand // chooses moments; keys, serials and the nodes' waits have their own randomness

	d       *deployment
	w       *wave // nil: none
	agents  []*agent
	renewed bool // certificates end during the run, so nodes get new ones

	over   time.Time // end of the fault
	result result
}

// result is a row of the table.
type result struct {
	fault       string
	nodes       int
	provisioned int           // provisioned nodes, by the checker
	first       time.Duration // from the end of the fault to the next provisioned node
	full        time.Duration // to a second as good as before the fault; 0: the wave was over before
	within      time.Duration // goal for full, at full size; 0: none
	seen        string        // by the checker
	failed      bool
}

// newRun makes a run's directory, which is kept if the run fails.
func newRun(t *testing.T, name string) *run {
	t.Helper()
	dir, err := os.MkdirTemp(work, "run-")
	if err != nil {
		t.Fatal(err)
	}
	r := &run{T: t, dir: dir, seed: *seed}
	r.rand = rand.New(rand.NewPCG(r.seed, uint64(len(name))))
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir)
			return
		}
		keep.Store(true)
		t.Logf("seed %d; left for inspection: %s", r.seed, dir)
	})
	return r
}

// embedded starts a provisioner with its own broker, and makes a wave of n nodes.
func (r *run) embedded(nodes int) {
	r.Helper()
	r.d = newEmbedded(r.T, r.dir, "127.0.0.1")
	r.d.serve()
	r.enroll(nodes, r.d.address())
}

// Shares of a run's nodes by token; the rest has an unlimited one.
const (
	exactly = 3 // a third has a sealed token with as many uses as nodes
	scarce  = 6 // a sixth has one with fewer uses
)

// enroll makes a wave of n nodes that connect to address, without starting it. It has tokens without a limit, with
// enough uses, and with too few.
func (r *run) enroll(nodes int, address string) {
	r.Helper()
	limited, few := nodes/exactly, nodes/scarce
	surplus := max(2, few/10)
	j := pace()
	j.URL, j.Spread = urlOf(address), lasting(2*time.Second, time.Duration(nodes)*time.Second/1000)
	j.Groups = []group{
		{Name: "open", Token: r.d.token("open", address, "--validity", "5y"), Count: nodes - limited - few},
		{
			Name: "exact",
			Token: r.d.token("exact", address, "--validity", "5y", "--seal", "prov/seal.pub", "--uses",
				fmt.Sprint(limited)),
			Count: limited,
			Uses:  limited,
		},
		{
			Name:  "scarce",
			Token: r.d.token("scarce", address, "--validity", "5y", "--uses", fmt.Sprint(few)),
			Count: few + surplus,
			Uses:  few,
		},
	}
	r.w = newWave(r.T, r.dir, 1+nodes/10_000, j)
}

// pace returns the nodes' timing: the agent's at full size, else short.
func pace() job {
	if *full {
		return job{
			Slots:      1000,
			BackoffMin: time.Second,
			BackoffMax: time.Minute,
			Timeout:    15 * time.Second,
			TellCap:    time.Hour,
		}
	}
	return job{
		Slots:      200,
		BackoffMin: 50 * time.Millisecond,
		BackoffMax: time.Second,
		Timeout:    5 * time.Second,
		TellCap:    time.Second,
	}
}

// size returns the size for CI or for full runs.
func size(small, large int) int {
	if *full {
		return large
	}
	return small
}

// lasting returns a fault's duration.
func lasting(small, large time.Duration) time.Duration {
	if *full {
		return large
	}
	return small
}

// upTo returns a random duration.
func (r *run) upTo(d time.Duration) time.Duration { return time.Duration(r.rand.Int64N(int64(d) + 1)) }

// recovers marks the end of the fault.
func (r *run) recovers() { r.over = time.Now() }

// somewhere waits until a random part of the wave is provisioned.
func (r *run) somewhere(from, to float64) {
	r.Helper()
	r.w.part(from + r.rand.Float64()*(to-from))
}

// settle waits until everything is as it must be, stops the provisioner, and checks store and disks.
func (r *run) settle() *checker {
	r.Helper()
	if r.w != nil {
		r.w.finish()
	}
	r.waitAgents()
	for _, a := range r.agents {
		a.p.kill() // at any moment its disk must be good
	}
	r.d.stop()
	c := check(r.T, r.d.read(), filepath.Join(r.dir, "prov/ca"))
	r.result.provisioned = r.checkAgents(c)
	r.result.nodes = len(r.agents)
	if r.w != nil {
		r.result.provisioned += r.checkWave(c)
		r.result.nodes += r.w.wanted()
		r.times()
	}
	r.result.seen = fmt.Sprintf("%d revisions of %d records, %d certificates", c.revisions, len(c.last), len(c.owner))
	return c
}

// checkWave compares the nodes' disks and replies with the store. It returns how many nodes are provisioned.
func (r *run) checkWave(c *checker) int {
	r.Helper()
	all := 0
	for _, g := range r.w.job.Groups {
		in := 0
		for i := range g.Count {
			identity := g.identity(i)
			if c.disk(identity, filepath.Join(r.w.job.Dir, identity)) {
				in++
			} else if g.Uses == 0 || g.Uses == g.Count {
				r.Errorf("%s is not provisioned", identity)
			}
			for _, serial := range r.w.told[identity] {
				if !slices.Contains(c.serials[identity], serial) {
					r.Errorf("%s was told certificate %s, which was never on record", identity, serial)
				}
			}
			if n := len(c.serials[identity]); n > 1 && !r.renewed {
				r.Errorf("%s: one key has had %d certificates", identity, n)
			}
		}
		if in != g.wanted() {
			r.Errorf("token %s: %d of %d nodes are provisioned, want %d", g.Name, in, g.Count, g.wanted())
		}
		all += in
	}
	for _, g := range r.w.job.Groups {
		if g.Uses == 0 {
			continue
		}
		if !slices.ContainsFunc(keysOf(c.limits), func(tid string) bool {
			return c.limits[tid] == g.Uses && c.most[tid] == g.Uses && len(c.held[tid]) == g.Uses &&
				len(c.certified[tid]) == g.Uses
		}) {
			r.Errorf("token %s: no log of claims has exactly %d uses held and certified", g.Name, g.Uses)
		}
	}
	return all
}

func keysOf[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// window is the interval of rates.
const window = 1000 // milliseconds

// times computes the recovery: to the first node, and to a second with nine tenths of the average rate before.
func (r *run) times() {
	if r.over.IsZero() {
		return
	}
	times := slices.Clone(r.w.times)
	slices.Sort(times)
	over := r.over.UnixMilli()
	i, _ := slices.BinarySearch(times, over)
	if i == len(times) {
		return
	}
	r.result.first = time.Duration(max(1, times[i]-over)) * time.Millisecond
	rate := median(times[:i])
	for k := i; rate > 0 && k < len(times); k++ {
		end, _ := slices.BinarySearch(times, times[k]+window)
		if end < len(times) && float64(end-k) >= 0.9*rate {
			r.result.full = time.Duration(max(1, times[k]-over)) * time.Millisecond
			return
		}
	}
}

// median returns the median rate of the seconds that had any.
func median(times []int64) float64 {
	seconds := map[int64]int{}
	for _, at := range times {
		seconds[at/window]++
	}
	var counts []int
	for _, n := range seconds {
		counts = append(counts, n)
	}
	if len(counts) < 3 {
		return 0
	}
	slices.SortFunc(counts, cmp.Compare[int])
	return float64(counts[len(counts)/2])
}
