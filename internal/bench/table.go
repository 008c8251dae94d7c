package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// A Row is one line of the standard table: a case, and what is to be reached on
// two cores.
type Row struct {
	Key  string // for --row
	Case string // %s stands for how many records or idle nodes there are
	Goal Goal
	set  func(*Config, *Table) error // changes the configuration of the first row
}

// A Goal is what a row is to reach; zero is no goal.
type Goal struct {
	Enrolled    float64 // a minute
	Provisioned float64 // a minute
	CPU         float64 // serving, microseconds a provisioned node
}

// A Table runs the standard rows, several times: each figure of it is the median of the
// rounds, and memory the most of them. A machine that is a guest is not as fast from
// one minute to the next, so what compares two rows compares those of one round, and
// the row with many records is played by turns with an empty store.
type Table struct {
	Rounds  int    // 1 or more
	Nodes   int    // of each wave of each row
	Stored  int    // records of the row that has many
	Idle    int    // nodes of the row that has a fleet connected
	Dir     string // as of [Config]
	Rows    []string
	Program func(args ...string) *exec.Cmd

	// SlowDisk starts a build of this program whose syncs take 1 ms longer
	// (.ci/slow-disk makes one). Optional; without it that row is left out.
	SlowDisk func(args ...string) *exec.Cmd

	Progress func(label string, nodes int) (add func(int), end func())

	// Each is called with the result of each row, in rounds from 1. Optional.
	Each func(round int, row Row, r *Result)

	// Page is called after each round with what Run would return if it were the last, so that
	// forty minutes are not lost in their last one. Optional; its error ends the run.
	Page func(page string) error

	rounds []map[string]*Result // by the key of the row
}

// errLeftOut means that a row cannot be run without something.
var errLeftOut = errors.New("left out")

// rows are the rows in their order. The second is about the first, so it comes right
// behind it.
var rows = []Row{
	{"shared", "shared connections, plain", Goal{220_000, 140_000, 550}, func(*Config, *Table) error { return nil }},
	{"open", "shared connections, open loop at 80 % of the peak", Goal{0, 0, 0}, func(c *Config, t *Table) error {
		peak := t.rounds[len(t.rounds)-1]["shared"]
		if peak == nil || peak.ProvisionedPerMinute == 0 {
			return errLeftOut
		}
		const share, span = 0.8, 30 * time.Second
		c.Waves, c.Rate = []Wave{WaveApplied}, share*peak.ProvisionedPerMinute/60
		c.Nodes = int(c.Rate * span.Seconds())
		return nil
	}},
	{"stored", "shared connections, %s records stored", Goal{0, 0, 0}, func(c *Config, t *Table) error { c.Stored = t.Stored; return nil }},
	{"tcp", "new TCP connection per node, plain", Goal{130_000, 100_000, 700}, func(c *Config, _ *Table) error { c.Shared = false; return nil }},
	{"sealed", "new TCP connection per node, sealed", Goal{100_000, 80_000, 850}, func(c *Config, _ *Table) error { c.Shared, c.Sealed = false, true; return nil }},
	{"tls", "new TLS connection per node", Goal{75_000, 60_000, 1100}, func(c *Config, _ *Table) error { c.Shared, c.TLS = false, true; return nil }},
	{"limited", "new TCP connection, limited token", Goal{100_000, 80_000, 850}, func(c *Config, _ *Table) error { c.Shared, c.Uses = false, c.Nodes; return nil }},
	{"facts", "shared connections, 20 KB of facts", Goal{110_000, 80_000, 900}, func(c *Config, _ *Table) error { c.FactsBytes = 20 << 10; return nil }},
	{"external", "external broker with auth callout, two provisioners, new TCP connections", Goal{50_000, 40_000, 0}, func(c *Config, _ *Table) error { c.Shared, c.Provisioners = false, 2; return nil }},
	{"slow-disk", "shared connections, disk that takes 1 ms more per fsync", Goal{150_000, 100_000, 0}, func(c *Config, t *Table) error {
		if t.SlowDisk == nil {
			return errLeftOut
		}
		c.Server = t.SlowDisk
		return nil
	}},
	{"idle", "shared connections, %s nodes connected over mutual TLS", Goal{0, 0, 0}, func(c *Config, t *Table) error { c.Idle = t.Idle; return nil }},
}

// RowKeys are the keys of all rows, in their order.
func RowKeys() []string {
	var keys []string
	for _, r := range rows {
		keys = append(keys, r.Key)
	}
	return keys
}

// Check reports everything wrong with t, each line naming its flag.
func (t *Table) Check() error {
	var errs []error
	for _, k := range t.Rows {
		if !slices.Contains(RowKeys(), k) {
			errs = append(errs, fmt.Errorf("--row is %q, want one of %s", k, strings.Join(RowKeys(), ", ")))
		}
	}
	if t.Rounds < 1 {
		errs = append(errs, fmt.Errorf("--rounds is %d, want 1 or more", t.Rounds))
	}
	c := t.config()
	c.Stored, c.Idle = t.Stored, t.Idle
	return errors.Join(append(errs, c.Check())...)
}

// config is the configuration of the first row.
func (t *Table) config() Config {
	return Config{
		Nodes: t.Nodes, Concurrency: 256, Shared: true, TokenKey: "rsa4096", FactsBytes: 2048, Waves: []Wave{WaveEnroll, WaveApplied}, Drivers: 1,
		Dir: t.Dir, Program: t.Program, Progress: t.Progress,
	}
}

// Run runs the rows and returns the page: the machine, the table and what else
// is to be reached. Rows that cannot be run are left out of it. Nodes that do
// not get through are an error.
func (t *Table) Run(ctx context.Context) (string, error) {
	if err := t.Check(); err != nil {
		return "", err
	}
	t.rounds = nil
	page := ""
	for range t.Rounds {
		if err := t.round(ctx); err != nil {
			return "", err
		}
		page = machine(t.Dir, t.Nodes, len(t.rounds)) + t.speeds() + "\n" + t.cases() + "\n" + t.goals()
		if t.Page != nil {
			if err := t.Page(page); err != nil {
				return "", err
			}
		}
	}
	return page, nil
}

// round runs every row once.
func (t *Table) round(ctx context.Context) error {
	results := make(map[string]*Result)
	t.rounds = append(t.rounds, results)
	for _, row := range rows {
		if len(t.Rows) > 0 && !slices.Contains(t.Rows, row.Key) {
			continue
		}
		c := t.config()
		if err := row.set(&c, t); errors.Is(err, errLeftOut) {
			continue
		}
		r, err := Run(ctx, c)
		if err == nil && r.Missing() > 0 {
			err = fmt.Errorf("%d nodes did not get through, the first: %s", r.Missing(), r.Why[0])
		}
		if err != nil {
			return fmt.Errorf("row %s: %w", row.Key, err)
		}
		results[row.Key] = r
		if t.Each != nil {
			t.Each(len(t.rounds), row, r)
		}
	}
	return nil
}

// figures returns a figure of a row, of each round; none if the row was left out.
func (t *Table) figures(key string, of func(*Result) float64) []float64 {
	return t.all(key, func(r *Result) []float64 { return []float64{of(r)} })
}

// all returns the figures of a row of which a result has several, of all rounds.
func (t *Table) all(key string, of func(*Result) []float64) []float64 {
	var all []float64
	for _, results := range t.rounds {
		if r := results[key]; r != nil {
			all = append(all, of(r)...)
		}
	}
	return all
}

// median returns the middle one of some values, the lower one of two; 0 of none.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}

// most returns the largest of some values; 0 of none.
func most(all []float64) float64 { return slices.Max(append([]float64{0}, all...)) }

// speeds says how fast the machine was before the rows, so that a table tells by itself
// whether it can be compared with another; nothing if no row was run.
func (t *Table) speeds() string {
	var results []*Result
	for _, round := range t.rounds {
		results = slices.AppendSeq(results, maps.Values(round))
	}
	if len(results) == 0 {
		return ""
	}
	each := func(of func(*Result) float64, format string) string {
		var all []float64
		for _, r := range results {
			all = append(all, of(r))
		}
		return fmt.Sprintf(format+" ("+format+" to "+format+")", median(all), slices.Min(all), slices.Max(all))
	}
	return fmt.Sprintf("The machine before each row, the median and from the least to the most: checking a P-256 signature %s µs, a read in 8 MB %s ns, a new page %s µs, a system call %s ns.\n",
		each(func(r *Result) float64 { return r.Verify }, "%.0f"), each(func(r *Result) float64 { return r.Read }, "%.0f"),
		each(func(r *Result) float64 { return r.Page }, "%.1f"), each(func(r *Result) float64 { return r.Syscall }, "%.0f"))
}

// cases returns the table of the rows.
func (t *Table) cases() string {
	var b strings.Builder
	b.WriteString("| case | enrolled a minute | provisioned a minute | serving CPU per node | driver CPU per node | p50 | p99 | peak memory | synced writes per node | fsync p50 |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range rows {
		m := func(of func(*Result) float64) float64 { return median(t.figures(row.Key, of)) }
		if len(t.figures(row.Key, nodesPerMinute)) == 0 {
			continue
		}
		enrolled := reached(m(nodesPerMinute), row.Goal.Enrolled, "%s")
		if row.Key == "open" {
			enrolled = "-"
		}
		what := strings.Replace(row.Case, "%s", thousands(m(func(r *Result) float64 { return float64(r.Stored + r.Idle) })), 1)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.0f µs | %.0f ms | %.0f ms | %.0f MB | %.2f | %.0f µs |\n", what, enrolled,
			reached(m(provisionedPerMinute), row.Goal.Provisioned, "%s"),
			reached(m(func(r *Result) float64 { return r.ServingCPU }), row.Goal.CPU, "%s µs"), m(func(r *Result) float64 { return r.DriverCPU }),
			m(func(r *Result) float64 { return r.P50 }), m(p99), most(t.figures(row.Key, peakMegabytes)),
			m(func(r *Result) float64 { return r.WritesPerNode }), m(func(r *Result) float64 { return r.FsyncP50 }))
	}
	return b.String()
}

// Figures of a row that both tables have.
func nodesPerMinute(r *Result) float64       { return r.NodesPerMinute }
func provisionedPerMinute(r *Result) float64 { return r.ProvisionedPerMinute }
func p99(r *Result) float64                  { return r.P99 }
func peakMegabytes(r *Result) float64        { return float64(r.PeakMemory) / 1e6 }

// goals returns the table of what else is to be reached.
func (t *Table) goals() string {
	var b strings.Builder
	line := func(what, got, goal string) { fmt.Fprintf(&b, "| %s | %s | %s |\n", what, got, goal) }
	if all := t.figures("open", p99); len(all) > 0 {
		line("open loop at 80 % of the peak, p99", spread(all, " ms"), "below 100 ms")
	}
	if all := t.figures("idle", func(r *Result) float64 { return float64(r.IdleMemory) / 1e6 }); len(all) > 0 {
		line(fmt.Sprintf("memory with %s nodes connected over mutual TLS", thousands(float64(t.Idle))), fmt.Sprintf("%.0f MB", most(all)), "below 650 MB")
	}
	if all := t.figures("stored", peakMegabytes); len(all) > 0 {
		of := func(figure func(*Result) float64) float64 { return most(t.figures("stored", figure)) / 1000 }
		line(fmt.Sprintf("start with %s records", thousands(float64(t.Stored))), fmt.Sprintf("%.1f s", of(func(r *Result) float64 { return r.StartMS })), "below 30 s")
		line("all of them listed", fmt.Sprintf("%.0f s", of(func(r *Result) float64 { return r.ListedMS })), "-")
		line("memory with them, at the worst", fmt.Sprintf("%.0f MB", most(all)), "below 2,000 MB")
		line("rate with them, of that when empty: enrolled", spread(t.all("stored", func(r *Result) []float64 { return r.EnrolledShare }), " %"), "90 % or more")
		line("provisioned", spread(t.all("stored", func(r *Result) []float64 { return r.ProvisionedShare }), " %"), "90 % or more")
	}
	if b.Len() == 0 {
		return ""
	}
	return "| to reach as well | measured | goal |\n|---|---|---|\n" + b.String()
}

// spread writes the median of some values, and of several all, in the order of their rounds.
func spread(all []float64, unit string) string {
	text := fmt.Sprintf("%.0f%s", median(all), unit)
	if len(all) == 1 {
		return text
	}
	var each []string
	for _, x := range all {
		each = append(each, fmt.Sprintf("%.0f", x))
	}
	return text + " (" + strings.Join(each, ", ") + ")"
}

// reached writes a figure with its goal behind it.
func reached(got, goal float64, format string) string {
	text := fmt.Sprintf(format, thousands(got))
	if goal > 0 {
		text += " (" + fmt.Sprintf(format, thousands(goal)) + ")"
	}
	return text
}

// thousands writes a whole number as people read it.
func thousands(x float64) string {
	digits := fmt.Sprintf("%.0f", x)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// The table stands between these in the documentation.
const (
	tableBegins = "<!-- make bench -->\n"
	tableEnds   = "<!-- end of make bench -->\n"
)

// WriteTable puts the page of [Table.Run] into its place in a file.
func WriteTable(file, page string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(b), tableBegins)
	_, after, ended := strings.Cut(rest, tableEnds)
	if !found || !ended {
		return fmt.Errorf("%s: no place for the table, between %q and %q", file, strings.TrimSpace(tableBegins), strings.TrimSpace(tableEnds))
	}
	return os.WriteFile(file, []byte(before+tableBegins+page+tableEnds+after), 0o644)
}
