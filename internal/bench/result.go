package bench

import (
	"math"
	"time"

	"muster/internal/wire"
)

// A Result is what a bench came to: also its form with --json, whose names are
// never changed.
//
// Where both waves were run, enrolled figures are of the wave that confirms
// nothing, and all others of the one that goes all the way.
type Result struct {
	Nodes       int `json:"nodes"`       // that began, in the last wave
	Enrolled    int `json:"enrolled"`    // of them: got their certificate, checked, with the record on disk
	Provisioned int `json:"provisioned"` // of them: their confirmation is on disk as well
	Refused     int `json:"refused"`     // for good, in all waves
	Failed      int `json:"failed"`      // did not get what they must get, in all waves

	NodesPerMinute       float64 `json:"nodes_per_minute"` // enrolled
	ProvisionedPerMinute float64 `json:"provisioned_per_minute"`
	Seconds              float64 `json:"seconds"` // of the last wave

	P50  float64 `json:"p50_ms"` // of nodes that got through, from their start, with --rate from when they were to start
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`

	Refusals   map[wire.Code]int `json:"refusals"`   // replies by code, busy among them, of all waves
	Broken     int               `json:"broken"`     // connections that failed and were made again
	Unanswered int               `json:"unanswered"` // requests that were sent again
	Crossed    int               `json:"crossed"`    // requests that were sent again since the reply was to another one

	ServingCPU       float64   `json:"serving_cpu_us_per_node"`
	DriverCPU        float64   `json:"driver_cpu_us_per_node"`
	PeakMemory       int64     `json:"peak_memory_bytes"` // of the serving processes
	WrittenPerNode   float64   `json:"written_bytes_per_node"`
	WritesPerNode    float64   `json:"durable_writes_per_node"` // acknowledged and synced; 0 if unknown
	FsyncP50         float64   `json:"fsync_p50_us"`
	StartMS          float64   `json:"start_ms"`                  // of the provisioner to serving, 0 with --url
	StartMemory      int64     `json:"start_memory_bytes"`        // then
	Stored           int       `json:"stored"`                    // records before the first wave
	ListedMS         float64   `json:"listed_ms"`                 // until the last process had listed all nodes; 0 without --stored
	EnrolledShare    []float64 `json:"enrolled_share_percent"`    // with --stored: of the rate of the same wave at an empty store just before, each time; else none
	ProvisionedShare []float64 `json:"provisioned_share_percent"` // the same
	Idle             int       `json:"idle"`                      // nodes connected over mutual TLS
	IdleMemory       int64     `json:"idle_memory_bytes"`
	Drivers          int       `json:"drivers"`
	Why              []string  `json:"why"` // the first few causes of refusals and failures

	Speed // of the machine, before the run

	Kick *Kick `json:"kick,omitempty"` // nil without --kick; all else is of the fleet's first provisioning then
}

func newResult(cfg *Config) *Result {
	return &Result{Refusals: map[wire.Code]int{}, Why: []string{}, EnrolledShare: []float64{}, ProvisionedShare: []float64{}, Drivers: cfg.Drivers, Stored: cfg.Stored}
}

// add takes in one wave, the last of which counts where there can be one only.
func (r *Result) add(kind Wave, w *wave) {
	var latencies []uint32
	r.Nodes, r.Enrolled, r.Provisioned = 0, 0, 0
	start, end, cpu := int64(math.MaxInt64), int64(0), int64(0)
	for _, o := range w.outcomes {
		r.Nodes += o.Nodes
		r.Enrolled += o.Enrolled
		r.Provisioned += o.Provisioned
		r.Refused += o.Refused
		r.Failed += o.Failed
		r.Broken += o.Broken
		r.Unanswered += o.Unanswered
		r.Crossed += o.Crossed
		for code, n := range o.Refusals {
			r.Refusals[code] += n
		}
		r.Why = append(r.Why, o.Why...)
		start, end, cpu = min(start, o.Start), max(end, o.End), cpu+o.CPU
		latencies = append(latencies, decodeLatencies(o.Latencies)...)
	}
	r.Why = r.Why[:min(len(r.Why), maxWhy)]
	took := time.Duration(max(end-start, 1))
	r.Seconds = rounded(took.Seconds(), 1000)
	rate := func(n int) float64 { return math.Round(float64(n) / took.Minutes()) }
	if kind == WaveEnroll || r.NodesPerMinute == 0 {
		r.NodesPerMinute = rate(r.Enrolled)
	}
	through := r.Enrolled
	if kind == WaveApplied {
		through = r.Provisioned
		r.ProvisionedPerMinute = rate(r.Provisioned)
	}
	r.P50, r.P99, r.P999 = milliseconds(latencies)
	perNode := func(n int64) float64 { return float64(n) / float64(max(through, 1)) }
	r.ServingCPU = rounded(perNode(w.after.cpu-w.before.cpu)/1000, 10)
	r.DriverCPU = rounded(perNode(cpu)/1000, 10)
	r.WrittenPerNode = math.Round(perNode(w.after.written - w.before.written))
	r.WritesPerNode = rounded(perNode(w.writes), 100)
	r.PeakMemory = w.after.peak
	r.FsyncP50 = rounded(float64(w.fsync.Nanoseconds())/1000, 10)
}

// compare takes in the wave that was added last with the same at an empty store.
// Nodes that failed there failed here.
func (r *Result) compare(kind Wave, empty *Result) {
	r.Refused, r.Failed = r.Refused+empty.Refused, r.Failed+empty.Failed
	r.Why = append(r.Why, empty.Why...)
	r.Why = r.Why[:min(len(r.Why), maxWhy)]
	share := func(with, without float64) float64 { return rounded(100*with/max(without, 1), 10) }
	if kind == WaveEnroll {
		r.EnrolledShare = append(r.EnrolledShare, share(r.NodesPerMinute, empty.NodesPerMinute))
	} else {
		r.ProvisionedShare = append(r.ProvisionedShare, share(r.ProvisionedPerMinute, empty.ProvisionedPerMinute))
	}
}

// rounded cuts what nobody reads.
func rounded(x, by float64) float64 { return math.Round(x*by) / by }

// Missing returns how many nodes did not get through.
func (r *Result) Missing() int { return r.Refused + r.Failed }
