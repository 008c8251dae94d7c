package bench

import (
	"math"
	"time"

	"muster/internal/wire"
)

// A Result is the measurement, and the output of -o json. If both waves were run, NodesPerMinute is from the wave
// without confirmations; other rates and costs are from the wave with them.
type Result struct {
	Nodes       int `json:"nodes"`       // started in the last wave
	Enrolled    int `json:"enrolled"`    // of the nodes: certificate checked, record on disk
	Provisioned int `json:"provisioned"` // of the nodes: confirmation on disk
	failures

	NodesPerMinute       float64 `json:"nodes_per_minute"`
	ProvisionedPerMinute float64 `json:"provisioned_per_minute"`
	Seconds              float64 `json:"seconds"`

	P50  float64 `json:"p50_ms"` // of successful nodes, from their start (with --rate: scheduled start)
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`

	ServingCPU     float64 `json:"serving_cpu_us_per_node"`
	DriverCPU      float64 `json:"driver_cpu_us_per_node"`
	PeakMemory     int64   `json:"peak_memory_bytes"`
	WrittenPerNode float64 `json:"written_bytes_per_node"`
	StartMS        float64 `json:"start_ms"`
	StartMemory    int64   `json:"start_memory_bytes"`
	Stored         int     `json:"stored"` // records before the first wave
	Idle           int     `json:"idle"`   // nodes connected over mutual TLS
	IdleMemory     int64   `json:"idle_memory_bytes"`

	Puppet *PuppetResult `json:"puppet,omitempty"` // with [Puppet]

	// ServiceNodes is how many nodes had connections. If not 0, all other figures are of service certificates.
	ServiceNodes int `json:"service_nodes,omitempty"`
}

// failures are counted in all waves.
type failures struct {
	Refused int `json:"refused"` // finally
	Failed  int `json:"failed"`  // wrong or no reply

	Refusals   map[wire.Code]int `json:"refusals"` // by code, including busy
	Broken     int               `json:"broken"`
	Unanswered int               `json:"unanswered"`

	Why []string `json:"why"` // the first few causes
}

func newResult(cfg *Config) *Result {
	return &Result{failures: failures{Refusals: map[wire.Code]int{}, Why: []string{}}, Stored: cfg.Stored}
}

// add adds a wave: most figures are of the last one.
func (r *Result) add(kind Wave, f *fleet) {
	c := f.count
	r.Nodes, r.Enrolled, r.Provisioned = int(c.begun.Load()), c.enrolled, c.provisioned
	r.Seconds = rounded(f.took().Seconds(), 1000)
	if kind == WaveEnroll || r.NodesPerMinute == 0 {
		r.NodesPerMinute = f.rate(c.enrolled)
	}
	through := c.enrolled
	if kind == WaveApplied {
		through = c.provisioned
		r.ProvisionedPerMinute = f.rate(through)
	}
	r.P50, r.P99, r.P999 = milliseconds(c.latencies, 0.50), milliseconds(c.latencies, 0.99),
		milliseconds(c.latencies, 0.999)
	r.ServingCPU = perNode(f.after.cpu-f.before.cpu, through)
	r.DriverCPU = perNode(f.cpu, through)
	r.WrittenPerNode = math.Round(float64(f.after.written-f.before.written) / float64(max(through, 1)))
	r.PeakMemory = f.after.peak
}

// took is the time until the last node was done.
func (f *fleet) took() time.Duration { return max(f.count.last.Sub(f.start), 1) }

// rate returns nodes a minute.
func (f *fleet) rate(nodes int) float64 { return math.Round(float64(nodes) / f.took().Minutes()) }

// perNode returns microseconds for each node.
func perNode(cpu int64, nodes int) float64 {
	return rounded(float64(cpu)/float64(max(nodes, 1))/1000, 10)
}

// milliseconds returns a quantile of sorted latencies by the nearest-rank method.
func milliseconds(sorted []time.Duration, quantile float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(quantile*float64(len(sorted)))) - 1
	return rounded(sorted[max(rank, 0)].Seconds()*1000, 1000)
}

func rounded(x, by float64) float64 { return math.Round(x*by) / by }
