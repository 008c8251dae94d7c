package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster/internal/daemon"
	"muster/internal/wire"
	"muster/jwt"
)

// policy is what the child's nodes are decided by unless --policy names
// another: about 30 lines that look at facts, as a fleet's would.
//
//go:embed policy.rego
var policy []byte

// startTimeout bounds the start of a child: opening a million records takes
// seconds, and machines are busy.
const startTimeout = 2 * time.Minute

// A serving is what is measured: a provisioner of our own, or somebody's.
type serving struct {
	url  string
	pids []int

	// Of our own only.
	dir    string // temporary: all of it goes
	key    crypto.Signer
	seal   string // public key, for sealed tokens
	pin    string // of the root
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended
	opened time.Duration // from its start to serving

	written int64 // synced writes to the store when its last process ended
}

// signerKey makes the key of the token's signer.
func signerKey(kind string) (crypto.Signer, error) {
	if kind == "ed25519" {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return rsa.GenerateKey(rand.Reader, 4096)
}

// install makes a setup in a temporary directory, as `muster provisioner init`
// would, for one token's signer and without quotas: one machine plays all nodes.
func install(cfg *Config) (_ *serving, err error) {
	s := &serving{}
	if s.dir, err = os.MkdirTemp(cfg.Dir, "muster-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(s.dir))
		}
	}()
	home := filepath.Join(s.dir, "provisioner")
	err = daemon.Init(home, daemon.Setup{
		Name: "provisioner.bench.muster", TrustDomain: "bench.muster", Listen: "127.0.0.1:0",
		BrokerNames: []string{"localhost"}, Addresses: []string{"127.0.0.1"}, TrustFirstUse: true,
	})
	if err != nil {
		return nil, err
	}
	if s.key, err = signerKey(cfg.TokenKey); err != nil {
		return nil, err
	}
	public, err := jwt.MarshalPublicKey(s.key.Public())
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(home, "signer.pem"), public, 0o644); err != nil {
		return nil, err
	}
	if err := s.installPolicy(home, cfg.Policy); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(home, "provisioner.yaml"))
	if err != nil {
		return nil, err
	}
	// All nodes come from one address here.
	quotas := []byte("\nquotas:\n  per_token: 0\n  per_source: 0\n  verifications_per_source: 0\n")
	text = bytes.Replace(text, []byte("\nquotas:\n"), quotas, 1)
	if err := os.WriteFile(filepath.Join(home, "provisioner.yaml"), text, 0o644); err != nil {
		return nil, err
	}
	sealKey, err := os.ReadFile(filepath.Join(home, "seal.pub"))
	if err != nil {
		return nil, err
	}
	s.seal = strings.TrimSpace(string(sealKey))
	s.pin, err = rootFingerprint(filepath.Join(home, "ca", "root.pem"))
	return s, err
}

// installPolicy puts the policy in place of the one of init, with its tests.
func (s *serving) installPolicy(home, file string) error {
	text := policy
	if file != "" {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
	}
	dir := filepath.Join(home, "policy")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bench.rego"), text, 0o644)
}

func rootFingerprint(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return "", fmt.Errorf("%s: no PEM", file)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return fingerprint(c), nil
}

// serves finds the broker's address in the log line that says that requests are
// taken.
var serves = regexp.MustCompile(`provisioner is serving.* broker="?nats://([^ "]+)`)

// start runs the provisioner as a process of its own, with its log in a file as
// under a unit, until it serves.
func (s *serving) start(ctx context.Context, cfg *Config, profile string) error {
	args := []string{"provisioner", "run", "--config", filepath.Join(s.dir, "provisioner", "provisioner.yaml")}
	if profile != "" {
		args = append(args, "--cpuprofile", profile)
	}
	name := s.log()
	log, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	began := time.Now()
	s.cmd = cfg.Program(args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours to pass on, when the drivers have stopped
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start a provisioner: %w", err)
	}
	s.pids = []int{s.cmd.Process.Pid}
	s.ended = make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(s.ended) }() // how it ended is in its log
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	address, err := s.address(ctx, name)
	if err != nil {
		return fmt.Errorf("start a provisioner: %w", err)
	}
	s.opened = time.Since(began)
	s.url = "nats://" + strings.Replace(address, "127.0.0.1", "localhost", 1) // the name in its certificate
	return nil
}

// address waits for the log line that has it.
func (s *serving) address(ctx context.Context, log string) (string, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(log)
		if err != nil {
			return "", err
		}
		if m := serves.FindSubmatch(b); m != nil {
			return string(m[1]), nil
		}
		select {
		case <-s.ended:
			b, _ := os.ReadFile(log) // all of it, now
			return "", fmt.Errorf("it ended: %s", lastLine(b))
		case <-ctx.Done():
			return "", fmt.Errorf("it does not serve: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// lastLine returns the last line of a log, for an error.
func lastLine(b []byte) string {
	last := "its log is empty"
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		last = lines.Text()
	}
	return last
}

// log is the log of the last child.
func (s *serving) log() string { return filepath.Join(s.dir, "provisioner.log") }

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
		return 0, fmt.Errorf("the provisioner did not stop as it should: %s", lastLine(b))
	}
	return strconv.ParseInt(string(m[1]), 10, 64)
}

// stop ends the child and removes everything; it can be called at any time.
func (s *serving) stop() error {
	if s.dir == "" {
		return nil
	}
	s.halt()
	return os.RemoveAll(s.dir)
}

// halt ends the child and leaves its files.
func (s *serving) halt() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(startTimeout):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// token signs a token for one wave.
func (s *serving) token(cfg *Config) (string, error) {
	c := jwt.Claims{
		Token: "bench", Brokers: strings.TrimPrefix(s.url, "nats://"), Default: true, Secure: cfg.TLS, Purpose: jwt.Purpose, Subject: jwt.Purpose,
		Issuer: "muster bench", IssuedAt: time.Now().UTC(), ExpiresAt: time.Now().Add(24 * time.Hour).UTC(), JTI: jwt.NewJTI(),
	}
	limits := jwt.Limits{Uses: cfg.Uses, CA: s.pin}
	if cfg.Sealed {
		limits.Seal = s.seal
	}
	if err := c.SetLimits(limits); err != nil {
		return "", err
	}
	return jwt.Sign(s.key, c)
}

// runID is part of the names of all nodes of a wave, so that no two waves share
// any.
func runID() string {
	return strings.ToLower(strings.NewReplacer("-", "0", "_", "1").Replace(wire.NewID()))[:10]
}
