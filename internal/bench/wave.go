package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// DriveVerb is the hidden verb that a driver process runs: [Drive] with its
// standard input and output.
const DriveVerb = "bench-driver"

// A wave is what was measured of one.
type wave struct {
	outcomes []*Outcome
	before   usage // of the serving processes
	after    usage
	fsync    time.Duration // p50
}

// wave has the drivers play one wave, and measures meanwhile.
func (s *serving) wave(ctx context.Context, cfg *Config, kind Wave, token string) (*wave, error) {
	// The drivers end with this context, whoever of us fails.
	told := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := runID()
	var drivers []*process
	defer func() {
		for _, p := range drivers {
			p.end()
		}
	}()
	for i := range cfg.Drivers {
		p, err := startDriver(cfg, cfg.order(s.url, run, token, kind, i))
		if err != nil {
			return nil, err
		}
		drivers = append(drivers, p)
	}
	context.AfterFunc(ctx, func() {
		for _, p := range drivers {
			p.end()
		}
	})
	w := &wave{outcomes: make([]*Outcome, len(drivers))}
	label := map[Wave]string{WaveEnroll: "enrolling", WaveApplied: "provisioning"}[kind]
	if err := await(cancel, drivers, cfg.progress("preparing", cfg.Nodes), func(r *Report) (int, bool) { return r.Prepared, r.Ready }); err != nil {
		return nil, s.explain(told, err)
	}
	if err := s.clock(ctx, cancel, cfg, w, drivers, cfg.progress(label, cfg.Nodes)); err != nil {
		return nil, s.explain(told, err)
	}
	var g errgroup.Group
	for i, p := range drivers {
		g.Go(func() error {
			for {
				r, err := p.report()
				if err != nil {
					return err
				}
				if r.Outcome != nil {
					w.outcomes[i] = r.Outcome
					return nil
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return nil, s.explain(told, err)
	}
	return w, nil
}

// clock starts the drivers and waits until the last of their nodes is through.
func (s *serving) clock(ctx context.Context, cancel func(), cfg *Config, w *wave, drivers []*process, p *progress) error {
	dir := s.dir
	if dir == "" {
		dir = cfg.Dir
	}
	disk, err := watchDisk(ctx, dir)
	if err != nil {
		return err
	}
	if w.before, err = usageOf(s.pids); err == nil {
		for _, p := range drivers {
			err = errors.Join(err, p.start())
		}
	}
	if err == nil {
		err = await(cancel, drivers, p, func(r *Report) (int, bool) { return r.Done, r.Ended })
	}
	after, uerr := usageOf(s.pids)
	w.after = after
	var derr error
	w.fsync, derr = disk.p50()
	return errors.Join(err, uerr, derr)
}

// explain says what is behind the failure of the drivers: that we were told to
// stop, or that the provisioner has ended.
func (s *serving) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-s.ended: // nil, so never, if it is not ours
		b, _ := os.ReadFile(filepath.Join(s.dir, "provisioner.log")) // err says enough without it
		return fmt.Errorf("%w; the provisioner has ended: %s", err, lastLine(b))
	default:
		return err
	}
}

// order is what driver i has to do: every Drivers-th node.
func (c *Config) order(url, run, token string, kind Wave, i int) *Order {
	o := &Order{
		URL: url, Token: token, Run: run, First: i, Step: c.Drivers, Nodes: share(c.Nodes, c.Drivers, i), Concurrency: max(1, share(c.Concurrency, c.Drivers, i)),
		Shared: c.Shared, TLS: c.TLS, Applied: kind == WaveApplied, FactsBytes: c.FactsBytes, Rate: c.Rate / float64(c.Drivers), Duration: int64(c.Duration),
	}
	if c.Rate > 0 {
		o.Offset = int64(float64(i) / c.Rate * float64(time.Second))
	}
	if i == 0 {
		o.Profile = c.DriverProfile
	}
	return o
}

// share is how many of n things are the i-th's of all.
func share(n, all, i int) int { return n/all + min(1, max(0, n%all-i)) }

// progress shows the sum of what several drivers have done.
type progress struct {
	add func(int)
	end func()

	mu sync.Mutex // one driver's at a time
}

func (c *Config) progress(label string, nodes int) *progress {
	add, end := c.Progress(label, nodes)
	return &progress{add: add, end: end}
}

// await reads reports until each driver has come so far, and shows how far they
// are. If one fails, cancel ends the others.
func await(cancel func(), drivers []*process, p *progress, far func(*Report) (int, bool)) error {
	defer p.end()
	var g errgroup.Group
	for _, d := range drivers {
		g.Go(func() (err error) {
			defer func() {
				if err != nil {
					cancel()
				}
			}()
			for before := 0; ; {
				r, err := d.report()
				if err != nil {
					return err
				}
				done, end := far(r)
				p.mu.Lock()
				p.add(done - before)
				p.mu.Unlock()
				before = done
				if end {
					return nil
				}
			}
		})
	}
	return g.Wait()
}

// process is a driver, seen from outside.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     io.Reader
	reports *json.Decoder
	says    strings.Builder // on standard error
	once    sync.Once
}

func startDriver(cfg *Config, o *Order) (*process, error) {
	p := &process{cmd: cfg.Program(DriveVerb)}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours
	p.cmd.Stderr = &p.says
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a driver: %w", err)
	}
	p.reports = json.NewDecoder(bufio.NewReader(p.out))
	b, err := json.Marshal(o)
	if err == nil {
		_, err = p.in.Write(append(b, '\n'))
	}
	if err != nil {
		p.end()
		return nil, fmt.Errorf("start a driver: %w", err)
	}
	return p, nil
}

// start starts its clock.
func (p *process) start() error {
	_, err := io.WriteString(p.in, "start\n")
	return err
}

// report reads its next line.
func (p *process) report() (*Report, error) {
	var r Report
	if err := p.reports.Decode(&r); err != nil {
		p.end() // so that all that it says has been read
		if said := strings.TrimSpace(p.says.String()); said != "" {
			return nil, fmt.Errorf("driver: %s", said)
		}
		return nil, fmt.Errorf("driver: %w", err)
	}
	return &r, nil
}

// end ends it, if it has not ended.
func (p *process) end() {
	p.once.Do(func() {
		_ = p.in.Close()
		_ = p.cmd.Process.Kill() // it holds nothing that would have to be put away
		_ = p.cmd.Wait()
	})
}
