package bench

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
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
	startTimeout = 2 * time.Minute // for opening a million records on a busy machine
	listTimeout  = 5 * time.Minute // for listing a million nodes: 15 s, after a wait of 30 s
)

// Log lines to wait for. The group is what [server.wait] returns.
var (
	ready       = regexp.MustCompile(`broker is running|provisioner is serving(?:.* broker="?nats://([^ "]+))?`)
	nodesListed = regexp.MustCompile(`all nodes are in the index`)
)

type serving struct {
	dir     string
	broker  string // address of a separate broker process; empty: none
	key     crypto.Signer
	seal    seal.PublicKey
	root    *x509.Certificate
	given   string            // token; empty: sign one
	puppet  string            // URL for Puppet agents
	login   string            // file with the authority of Puppet agents, and an operator's certificate
	issuer  ed25519.PublicKey // of Choria servers' JWTs, or nil
	servers []*server
	pids    []int
	url     string
	opened  time.Duration // from the start of the first process until the last one serves
}

func (s *serving) home() string { return filepath.Join(s.dir, "provisioner") }

type server struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed at its end
}

// start starts the serving processes one after another; each logs to a file. ended gets the first one's end.
func (s *serving) start(ctx context.Context, cfg *Config, ended context.CancelCauseFunc) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.pids, s.url = nil, "nats://"+s.broker
	began := time.Now()
	for i, args := range s.commands(cfg) {
		p, err := startServer(cfg.Program(args...), filepath.Join(s.dir, strconv.Itoa(i)+".log"), ended)
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

func startServer(cmd *exec.Cmd, log string, ended context.CancelCauseFunc) (*server, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	p := &server{cmd: cmd, log: log, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not stop it before the nodes
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd, err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
		ended(fmt.Errorf("%s has ended: %s", strings.Join(cmd.Args[:3], " "), logTail(log)))
	}()
	return p, nil
}

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
		case <-ctx.Done():
			return "", fmt.Errorf("it is not ready in time: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// logTail returns the last five lines of a log, since a mistake in a policy takes three.
func logTail(log string) string {
	b, _ := os.ReadFile(log) // an empty text is enough
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// waitListed waits until the provisioner has listed all nodes, so that the measurement includes this memory.
func (s *serving) waitListed(ctx context.Context, f *fleet) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if _, err := s.servers[len(s.servers)-1].wait(ctx, nodesListed); err != nil {
		return fmt.Errorf("wait for the list of nodes: %w", err)
	}
	u, err := usageOf(s.pids)
	f.after.peak = u.peak
	return err
}

// halt stops the processes, the last one first, and keeps their files.
func (s *serving) halt() error {
	var errs []error
	for _, p := range slices.Backward(s.servers) {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(startTimeout):
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
		if !p.cmd.ProcessState.Success() {
			errs = append(errs, fmt.Errorf("%s did not stop cleanly: %s", p.cmd, logTail(p.log)))
		}
	}
	s.servers = nil
	return errors.Join(errs...)
}
