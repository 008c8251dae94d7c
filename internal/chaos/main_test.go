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

	work string      // holds everything
	keep atomic.Bool // whether it is left for inspection
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

// rows are the faults, in the order of the table.
var rows = []struct {
	name  string
	fault func(*run)
}{
	{"kill -9 of the provisioner with its broker", killProvisioner},
	{"SIGSTOP of the provisioner, then SIGCONT", stopProvisioner},
	{"connections cut in the middle of messages", cutConnections},
	{"connections stalled in the middle of messages", stallConnections},
	{"network partition between nodes and provisioner", partition},
	{"disk full, then space again", fullDisk},
	{"disk read-only, then mounted again", readOnlyDisk},
	{"store that acknowledges late", lateDisk},
	{"rolling restart of everything", restartAll},
	{"the provisioner's clock a year behind, then right", provisionerBehind},
	{"the provisioner's clock a year ahead, then right", provisionerAhead},
	{"agents' clocks a year behind and ahead, then right", agentsMoved},
	{"agents of this protocol, a provisioner of the next", oldNodes},
	{"agents of the next protocol, a provisioner of this one", newNodes},
	{"kill -9 of agents between any two steps", killAgents},
	{"storm of nodes, kill -9 of the provisioner in it", storm},
	{"cluster: kill -9 of a follower, later back", killFollower},
	{"cluster: kill -9 of the leader, later back", killLeader},
	{"cluster: kill -9 of two of three, later back", killMajority},
	{"cluster: SIGSTOP of the leader, then SIGCONT", stopLeader},
	{"cluster: the leader's host cut off, then connected", partitionLeader},
	{"cluster: kill -9 of one of two provisioners, later back", killOneProvisioner},
	{"cluster: rolling restart of everything", restartCluster},
	{"cluster: storm of nodes, kill -9 of the leader in it", stormCluster},
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
		t.Run(row.name, func(t *testing.T) {
			if !*full {
				t.Parallel()
			}
			r := newRun(t, row.name)
			r.result.fault = row.name
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
