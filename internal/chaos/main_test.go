package chaos_test

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

var (
	full = flag.Bool("chaos.full", false, "run at full size, one fault after the other, and print a table")
	seed = flag.Uint64("chaos.seed", uint64(time.Now().UnixNano()), "chooses when faults strike")
	doc  = flag.String("chaos.doc", "", "page of documentation to write the table into")

	work string      // working directory
	keep atomic.Bool // keep it for inspection
)

// TestMain runs the tests, or a driver of nodes in a child process.
func TestMain(m *testing.M) {
	if child() {
		return
	}
	flag.Parse()
	if *full {
		patience = 5 * time.Minute
	}
	var err error
	if work, err = os.MkdirTemp("", "muster-chaos-"); err != nil {
		panic(err)
	}
	m.Run()
	if !keep.Load() {
		_ = os.RemoveAll(work)
	}
}

// A row is a fault.
type row struct {
	name   string
	fault  func(*run)
	within time.Duration // goal for the return of the full rate, at full size; 0: none
	small  bool          // also in `make ci`, with fewer nodes
}

// rows are the faults, in the order of the table.
var rows = []row{
	{name: "kill -9 of the provisioner with its broker", fault: killProvisioner, small: true},
	{name: "SIGSTOP of the provisioner, then SIGCONT", fault: stopProvisioner},
	{name: "connections cut in the middle of messages", fault: cutConnections},
	{name: "connections stalled in the middle of messages", fault: stallConnections},
	{name: "network partition between nodes and provisioner", fault: partition, small: true},
	{name: "disk full, then space again", fault: fullDisk, small: true},
	{name: "disk read-only, then mounted again", fault: readOnlyDisk},
	{name: "store that acknowledges late", fault: lateDisk},
	{name: "rolling restart of everything", fault: restartAll},
	{name: "the provisioner's clock a year behind, then right", fault: provisionerBehind},
	{name: "the provisioner's clock a year ahead, then right", fault: provisionerAhead},
	{name: "agents' clocks a year behind and ahead, then right", fault: agentsMoved},
	{name: "kill -9 of agents between any two steps", fault: killAgents, small: true},
	{name: "storm of nodes, kill -9 of the provisioner in it", fault: storm, within: 10 * time.Second},
	{name: "cluster: kill -9 of a follower, later back", fault: killFollower},
	{name: "cluster: kill -9 of the leader, later back", fault: killLeader, small: true},
	{name: "cluster: kill -9 of two of three, later back", fault: killMajority},
	{name: "cluster: SIGSTOP of the leader, then SIGCONT", fault: stopLeader},
	{name: "cluster: the leader's host cut off, then connected", fault: partitionLeader},
	{name: "cluster: kill -9 of one of two provisioners, later back", fault: killOneProvisioner, small: true},
	{name: "cluster: rolling restart of everything", fault: restartCluster},
	{name: "cluster: storm of nodes, kill -9 of the leader in it", fault: stormCluster, within: 15 * time.Second},
	{name: "cluster of nats-server: storm, kill -9 of the leader in it", fault: stormStock, within: 15 * time.Second},
}

func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs and starts them")
	}
	if !*full {
		t.Parallel()
	}
	var results []result
	for _, row := range rows {
		if !*full && !row.small {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			if !*full {
				t.Parallel()
			}
			r := newRun(t, row.name)
			r.result.fault, r.result.within = row.name, row.within
			defer func() {
				r.result.failed = t.Failed()
				t.Log(r.result.line())
				if *full {
					results = append(results, r.result)
					_, _ = fmt.Fprintln(os.Stderr, r.result.line())
				}
			}()
			row.fault(r)
		})
	}
	if *full {
		report(t, results)
	}
}
