package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
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
	writes   int64         // synced, 0 if unknown
}

// played is what is different from one wave of a run to the next.
type played struct {
	label string
	Order // what all drivers are told, but for their share of the nodes
}

// played is the wave of a kind.
func (c *Config) played(kind Wave) played {
	return played{map[Wave]string{WaveEnroll: "enrolling", WaveApplied: "provisioning"}[kind], Order{
		Nodes: c.Nodes, Concurrency: c.Concurrency, Shared: c.Shared, TLS: c.TLS, Applied: kind == WaveApplied, FactsBytes: c.FactsBytes,
		Rate: c.Rate, Duration: int64(c.Duration), Profile: c.DriverProfile,
	}}
}

// wave has the drivers play one wave, and measures meanwhile.
func (s *serving) wave(ctx context.Context, cfg *Config, p played, token string) (*wave, error) {
	w, drivers, err := s.play(ctx, cfg, p, token)
	drivers.end()
	return w, err
}

// processes are the drivers of a wave.
type processes []*process

func (all processes) end() {
	for _, p := range all {
		p.end()
	}
}

// play is wave, whose drivers go on until they are ended.
func (s *serving) play(ctx context.Context, cfg *Config, play played, token string) (*wave, processes, error) {
	// If one fails, the others end, too.
	told := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := runID()
	var drivers processes
	for i := range cfg.Drivers {
		o := play.share(cfg.Drivers, i)
		o.URL, o.Token, o.Run = s.url, token, run
		p, err := startDriver(cfg, o)
		if err != nil {
			return nil, drivers, err
		}
		drivers = append(drivers, p)
	}
	unhook := context.AfterFunc(ctx, drivers.end)
	defer unhook()
	w := &wave{outcomes: make([]*Outcome, len(drivers))}
	err := await(cancel, drivers, cfg.progress("preparing", play.Nodes), func(_ int, r *Report) (int, bool) { return r.Prepared, r.Ready })
	if err == nil {
		err = s.clock(ctx, cancel, cfg, w, drivers, cfg.progress(play.label, play.Nodes))
	}
	if err == nil {
		err = await(cancel, drivers, cfg.progress("verifying", play.Nodes), func(i int, r *Report) (int, bool) {
			w.outcomes[i] = r.Outcome // each its own
			return 0, r.Outcome != nil
		})
	}
	if err == nil && play.Stay {
		err = await(cancel, drivers, cfg.progress("connecting", play.Nodes), func(_ int, r *Report) (int, bool) { return r.Connected, r.Settled })
	}
	if err != nil {
		return nil, drivers, s.explain(told, err)
	}
	return w, drivers, nil
}

// clock starts the drivers and waits until the last of their nodes is through.
func (s *serving) clock(ctx context.Context, cancel func(), cfg *Config, w *wave, drivers processes, p *progress) error {
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
		err = await(cancel, drivers, p, func(_ int, r *Report) (int, bool) { return r.Done, r.Ended })
	}
	after, uerr := usageOf(s.pids)
	w.after = after
	var derr error
	w.fsync, derr = disk.p50()
	return errors.Join(err, uerr, derr)
}

// explain says what is behind the failure of the drivers: that we were told to
// stop, or that a process has ended that serves.
func (s *serving) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, p := range s.servers {
		select {
		case <-p.ended:
			return fmt.Errorf("%w; muster %s has ended: %s", err, strings.Join(p.cmd.Args[1:3], " "), lastWords(p.log))
		default:
		}
	}
	return err
}

// share is what driver i of several has to do: every so many-th node.
func (o Order) share(drivers, i int) *Order {
	o.First, o.Step = i, drivers
	if o.Rate > 0 {
		o.Offset = int64(float64(i) / o.Rate * float64(time.Second))
	}
	o.Nodes, o.Concurrency, o.Rate = share(o.Nodes, drivers, i), max(1, share(o.Concurrency, drivers, i)), o.Rate/float64(drivers)
	if i > 0 {
		o.Profile = ""
	}
	return &o
}

// share is how many of n things are the i-th's of all.
func share(n, all, i int) int { return n/all + min(1, max(0, n%all-i)) }

// progress shows the sum of what several drivers have done.
type progress struct {
	add func(int)
	end func()

	mu sync.Mutex // one driver's at a time
}

// silent shows nothing.
func silent() *progress { return &progress{add: func(int) {}, end: func() {}} }

func (c *Config) progress(label string, nodes int) *progress {
	add, end := c.Progress(label, nodes)
	return &progress{add: add, end: end}
}

// await reads reports until each driver has come so far, and shows how far they
// are. If one fails, cancel ends the others.
func await(cancel func(), drivers processes, p *progress, far func(int, *Report) (int, bool)) error {
	defer p.end()
	var g errgroup.Group
	for i, d := range drivers {
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
				done, end := far(i, r)
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
	if err := startYielding(p.cmd); err != nil {
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
