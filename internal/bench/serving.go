package bench

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster/internal/seal"
)

const (
	startTimeout = 2 * time.Minute // of a process that opens a million records on a busy machine
	listTimeout  = 5 * time.Minute // of the list of nodes: a million take 15 s, and wait 30 s before
)

// Lines of logs that are waited for. A group is what is read of them.
var (
	ready       = regexp.MustCompile(`broker is running|provisioner is serving(?:.* broker="?nats://([^ "]+))?`)
	nodesListed = regexp.MustCompile(`nodes are listed.* elapsed=([^ \n]+)`)
)

// A serving is what is measured: the setup and the processes of a provisioner.
type serving struct {
	dir     string // for files, temporary
	broker  string // where a broker with a process of its own listens; empty without one
	key     crypto.Signer
	seal    seal.PublicKey
	root    *x509.Certificate
	servers []*server
	pids    []int         // of them
	url     string        // of their broker
	opened  time.Duration // from the start of the first process until the last one serves
}

// home is where the setup is.
func (s *serving) home() string { return filepath.Join(s.dir, "provisioner") }

// A server is one process that serves.
type server struct {
	cmd   *exec.Cmd
	log   string        // file
	ended chan struct{} // closed when it has ended
}

// start runs the serving processes, one after the other, each with its log in a file as under a unit.
func (s *serving) start(ctx context.Context, cfg *Config) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.pids, s.url = nil, "nats://"+s.broker
	began := time.Now()
	for i, args := range s.commands(cfg) {
		p, err := startServer(cfg.Program(args...), filepath.Join(s.dir, strconv.Itoa(i)+".log"))
		if err != nil {
			return err
		}
		s.servers = append(s.servers, p)
		s.pids = append(s.pids, p.cmd.Process.Pid)
		address, err := p.wait(ctx, ready)
		if err != nil {
			return fmt.Errorf("start muster %s: %w", strings.Join(args[:2], " "), err)
		}
		if address != "" {
			s.url = "nats://" + strings.Replace(address, "127.0.0.1", "localhost", 1) // the name in its certificate
		}
	}
	s.opened = time.Since(began)
	return nil
}

func startServer(cmd *exec.Cmd, log string) (*server, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the process has its own
	p := &server{cmd: cmd, log: log, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C ends it when the nodes have stopped
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd, err)
	}
	go func() { _ = cmd.Wait(); close(p.ended) }()
	return p, nil
}

// wait waits for a line of the log and returns its group.
func (p *server) wait(ctx context.Context, line *regexp.Regexp) (string, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(p.log)
		if err != nil {
			return "", err
		}
		if m := line.FindSubmatch(b); m != nil {
			return string(bytes.Join(m[1:], nil)), nil
		}
		select {
		case <-p.ended:
			return "", errors.New("it ended: " + lastWords(p.log))
		case <-ctx.Done():
			return "", fmt.Errorf("it does not serve: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// whileServed returns a context that ends, with the reason as its cause, when a serving process ends.
func (s *serving) whileServed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, p := range s.servers {
		go func() {
			select {
			case <-p.ended:
				cancel(fmt.Errorf("%s has ended: %s", strings.Join(p.cmd.Args[:3], " "), lastWords(p.log)))
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// lastWords returns the end of a log: why the process has ended. A mistake in a policy has three lines.
func lastWords(log string) string {
	b, _ := os.ReadFile(log) // an empty one says enough
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// listed waits until the provisioner has listed all nodes, which a busy one puts off, so that the memory for that
// counts as well.
func (s *serving) listed(ctx context.Context, result *Result, w *wave) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	took, err := s.servers[len(s.servers)-1].wait(ctx, nodesListed)
	if err != nil {
		return fmt.Errorf("wait for the list of nodes: %w", err)
	}
	d, err := time.ParseDuration(took)
	if err != nil {
		return fmt.Errorf("wait for the list of nodes: %w", err)
	}
	u, err := usageOf(s.pids)
	result.ListedMS, w.after.peak = rounded(d.Seconds()*1000, 1), u.peak
	return err
}

// halt ends the processes, the last first, and leaves their files.
func (s *serving) halt() error {
	var errs []error
	for _, p := range slices.Backward(s.servers) {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-p.ended:
		case <-time.After(startTimeout):
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
		if !p.cmd.ProcessState.Success() {
			errs = append(errs, fmt.Errorf("%s did not stop as it should: %s", p.cmd, lastWords(p.log)))
		}
	}
	s.servers = nil
	return errors.Join(errs...)
}

// stop ends everything and removes it. It can be called at any time.
func (s *serving) stop() error {
	_ = s.halt() // what was measured has been read
	return os.RemoveAll(s.dir)
}
