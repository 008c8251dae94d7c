package bench

import (
	"bytes"
	"context"
	"crypto"
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
)

// startTimeout bounds the start of a process: opening a million records takes
// seconds, and machines are busy.
const startTimeout = 2 * time.Minute

// A command is a serving process that a bench starts.
type command struct {
	args []string // of muster

	// ready matches the line of its log that says that it serves. Its group, if
	// it has one, is the address where nodes connect.
	ready *regexp.Regexp
}

// provisionerReady is the line of a provisioner with its own broker.
var provisionerReady = regexp.MustCompile(`provisioner is serving.* broker="?nats://([^ "]+)`)

// nodesListed is the line of a provisioner that has listed all nodes. Its group is
// how long after its start.
var nodesListed = regexp.MustCompile(`nodes are listed.* elapsed=([^ \n]+)`)

// listTimeout bounds that; a million take 15 s on two cores, and wait 30 s before.
const listTimeout = 5 * time.Minute

// A serving is what is measured: processes of our own, or somebody's.
type serving struct {
	url  string
	pids []int

	// Of our own only.
	dir     string // temporary: all of it goes
	broker  string // where a broker of its own process listens; empty without one
	key     crypto.Signer
	seal    string // public key, for sealed tokens
	pin     string // of the root
	servers []*server
	opened  time.Duration // from the start of the first to the last one's serving
	written int64         // synced writes to the store when the last process ended
}

// home is where the setup is.
func (s *serving) home() string { return filepath.Join(s.dir, "provisioner") }

// A server is one process that serves.
type server struct {
	cmd   *exec.Cmd
	log   string        // file
	ended chan struct{} // closed when it has ended; how is in its log
}

// start runs the serving processes, one after the other, each with its log in a
// file as under a unit, until all serve. The last one is profiled if there is a
// file for it.
func (s *serving) start(ctx context.Context, cfg *Config, profile string) error {
	commands := s.commands(cfg)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.pids, s.url = nil, "nats://"+s.broker
	began := time.Now()
	for i, c := range commands {
		if profile != "" && i == len(commands)-1 {
			c.args = append(c.args, "--cpuprofile", profile)
		}
		p, err := startServer(cfg, c.args, filepath.Join(s.dir, strconv.Itoa(i)+".log"))
		if err != nil {
			return err
		}
		s.servers = append(s.servers, p)
		s.pids = append(s.pids, p.cmd.Process.Pid)
		address, err := p.wait(ctx, c.ready)
		if err != nil {
			return fmt.Errorf("start muster %s: %w", strings.Join(c.args[:2], " "), err)
		}
		if address != "" {
			s.url = "nats://" + strings.Replace(address, "127.0.0.1", "localhost", 1) // the name in its certificate
		}
	}
	s.opened = time.Since(began)
	return nil
}

func startServer(cfg *Config, args []string, log string) (*server, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the process has its own
	p := &server{cmd: cfg.Server(args...), log: log, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours to pass on, when the drivers have stopped
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start muster %s: %w", args[0], err)
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	return p, nil
}

// wait waits for the log line that says that it serves.
func (p *server) wait(ctx context.Context, ready *regexp.Regexp) (address string, err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(p.log)
		if err != nil {
			return "", err
		}
		if m := ready.FindSubmatch(b); m != nil {
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

// mostWords is how many lines of why a process ended are shown: a mistake in a
// policy has three.
const mostWords = 12

// lastWords returns why a process has ended by its log: what it said to people at
// the end, or else its last line.
func lastWords(log string) string {
	b, _ := os.ReadFile(log) // an empty one says enough
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	var said []string
	for _, line := range slices.Backward(lines) {
		text, ok := strings.CutPrefix(line, "muster: ")
		if !ok {
			break
		}
		said = append(said, text)
	}
	slices.Reverse(said)
	switch {
	case len(said) > 0:
		return strings.Join(said[:min(len(said), mostWords)], "\n")
	case lines[len(lines)-1] == "":
		return "its log is empty"
	}
	return lines[len(lines)-1]
}

// complete finds the log line that says how much was written.
var complete = regexp.MustCompile(`store is complete.* writes=([0-9]+)`)

// writes reads from the log of a provisioner that has stopped how much its
// store has ever taken.
func writes(log string) (int64, error) {
	b, err := os.ReadFile(log)
	if err != nil {
		return 0, err
	}
	m := complete.FindSubmatch(b)
	if m == nil {
		return 0, fmt.Errorf("a provisioner did not stop as it should: %s", lastWords(log))
	}
	return strconv.ParseInt(string(m[1]), 10, 64)
}

// halt ends the processes, the last first, and leaves their files. It returns
// how many writes the store has taken, as the last one says, which is a
// provisioner.
func (s *serving) halt() (int64, error) {
	if len(s.servers) == 0 {
		return 0, nil
	}
	last := s.servers[len(s.servers)-1]
	for len(s.servers) > 0 {
		p := s.servers[len(s.servers)-1]
		s.servers = s.servers[:len(s.servers)-1]
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-p.ended:
		case <-time.After(startTimeout):
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
	return writes(last.log)
}

// stop ends everything and removes it; it can be called at any time.
func (s *serving) stop() error {
	_, _ = s.halt() // what was measured has been read
	return os.RemoveAll(s.dir)
}
