package bench

import (
	"math"
	"slices"
	"time"

	"muster/internal/wire"
)

// A Result is the measurement, and the output of -o json. If both waves were run, NodesPerMinute is from the wave
// without confirmations; other rates and costs are from the wave with them.
type Result struct {
	Nodes       int `json:"nodes"`       // started in the last wave
	Enrolled    int `json:"enrolled"`    // of the nodes: certificate checked, record on disk
	Provisioned int `json:"provisioned"` // of the nodes: confirmation on disk
	Refused     int `json:"refused"`     // finally, in all waves
	Failed      int `json:"failed"`      // wrong or no reply, in all waves

	NodesPerMinute       float64 `json:"nodes_per_minute"`
	ProvisionedPerMinute float64 `json:"provisioned_per_minute"`
	Seconds              float64 `json:"seconds"`

	P50  float64 `json:"p50_ms"` // of successful nodes, from their start (with --rate: scheduled start)
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`

	Refusals   map[wire.Code]int `json:"refusals"` // refusals by code, including busy, in all waves
	Broken     int               `json:"broken"`
	Unanswered int               `json:"unanswered"`

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

	Why []string `json:"why"` // the first few causes of refusals and failures
}

func newResult(cfg *Config) *Result {
	return &Result{Refusals: map[wire.Code]int{}, Why: []string{}, Stored: cfg.Stored}
}

// add adds a wave: counts are summed, most other figures are of the last wave.
func (r *Result) add(kind Wave, w *wave) {
	c := &w.count
	r.Nodes, r.Enrolled, r.Provisioned = int(c.begun.Load()), c.enrolled, c.provisioned
	r.addFailures(c)

	took := max(c.last.Sub(w.start), 1)
	rate := func(n int) float64 { return math.Round(float64(n) / took.Minutes()) }
	r.Seconds = rounded(took.Seconds(), 1000)
	if kind == WaveEnroll || r.NodesPerMinute == 0 {
		r.NodesPerMinute = rate(c.enrolled)
	}
	through := c.enrolled
	if kind == WaveApplied {
		through = c.provisioned
		r.ProvisionedPerMinute = rate(through)
	}
	slices.Sort(c.latencies)
	r.P50, r.P99, r.P999 = milliseconds(c.latencies, 0.50), milliseconds(c.latencies, 0.99),
		milliseconds(c.latencies, 0.999)

	perNode := func(n int64) float64 { return float64(n) / float64(max(through, 1)) }
	r.ServingCPU = rounded(perNode(w.after.cpu-w.before.cpu)/1000, 10)
	r.DriverCPU = rounded(perNode(w.cpu)/1000, 10)
	r.WrittenPerNode = math.Round(perNode(w.after.written - w.before.written))
	r.PeakMemory = w.after.peak
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

// Missing returns how many nodes failed.
func (r *Result) Missing() int { return r.Refused + r.Failed }

func (r *Result) addFailures(c *counts) {
	r.Refused += c.refused
	r.Failed += c.failed
	r.Broken += c.broken
	r.Unanswered += c.unanswered
	for code, n := range c.refusals {
		r.Refusals[code] += n
	}
	r.Why = append(r.Why, c.why...)
	r.Why = r.Why[:min(len(r.Why), maxWhy)]
}
