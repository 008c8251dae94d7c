package server_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// childEnv holds the job of a child process: this test binary, as an agent that kills itself.
const childEnv = "MUSTER_TEST_AGENT"

type job struct {
	TokenFile, ConfFile, SSLDir, Identity string
	KillAfter                             string // step after which to die; empty: never
	Occurrence                            int    // occurrence of the step, from 1
	MaxFileBytes                          uint64
	Later                                 time.Duration // how far its clock is ahead
	Until                                 server.EventKind
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		runChild(text)
	}
	os.Exit(m.Run())
}

func (j job) config() server.Config {
	cfg := server.Config{TokenFile: j.TokenFile, ConfFile: j.ConfFile, SSLDir: j.SSLDir, Identity: j.Identity,
		BackoffMin: 5 * time.Millisecond, BackoffMax: 50 * time.Millisecond, RequestTimeout: 5 * time.Second,
		WatchInterval: 20 * time.Millisecond}
	if j.Later != 0 {
		cfg.Now = func() time.Time { return time.Now().Add(j.Later) }
	}
	return cfg
}

// runChild runs an agent until it has killed itself, is connected to the fleet, or reaches the job's end.
func runChild(text string) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		panic(err)
	}
	if j.Until == "" {
		j.Until = server.EventConnected
	}
	if j.MaxFileBytes > 0 {
		signal.Ignore(unix.SIGXFSZ) // so that writes fail with EFBIG
		limit := unix.Rlimit{Cur: j.MaxFileBytes, Max: j.MaxFileBytes}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			panic(err)
		}
	}
	cfg := j.config()
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	steps := 0
	cfg.SetSteps(func(name string) {
		if name != j.KillAfter {
			return
		}
		if steps++; steps == j.Occurrence {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal arrives
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	cfg.Observe = func(e server.Event) {
		if e.Kind == j.Until {
			cancel()
		}
	}
	s, err := server.New(cfg)
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startChild starts a child process on a job.
func startChild(t *testing.T, j job) (*exec.Cmd, *lockedBuffer) {
	t.Helper()
	return startChildBy(t, j)
}

// startChildBy starts a child through another program.
func startChildBy(t *testing.T, j job, by ...string) (*exec.Cmd, *lockedBuffer) {
	t.Helper()
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	stderr := &lockedBuffer{}
	args := append(by, os.Args[0])
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"="+string(b))
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, stderr
}

// newJob is to run the agent of cfg.
func newJob(cfg server.Config) job {
	return job{TokenFile: cfg.TokenFile, ConfFile: cfg.ConfFile, SSLDir: cfg.SSLDir, Identity: cfg.Identity}
}

// eachStep runs a subtest for each step of an agent.
func eachStep(t *testing.T, steps []string, run func(t *testing.T, step string, occurrence int)) {
	t.Helper()
	occurrences := map[string]int{}
	for i, step := range steps {
		occurrences[step]++
		if step == "clock saved" {
			continue // only after a minute
		}
		occurrence := occurrences[step]
		t.Run(fmt.Sprintf("%02d after %s", i+1, step), func(t *testing.T) { run(t, step, occurrence) })
	}
}

// A layout is a state of a node's files before it is provisioned.
type layout struct {
	fresh bool // no files
	flat  bool // all in one directory
	again bool // provisioned, with an order to reprovision
}

func (l layout) prepare(t *testing.T, f *fleet) (server.Config, job) {
	t.Helper()
	cfg := f.node("web1.example.net")
	if l.flat {
		cfg.ConfFile = filepath.Join(cfg.SSLDir, "server.conf")
	}
	switch {
	case l.fresh:
	case l.again:
		f.set(func() { f.enroll = nil })
		f.member(t, cfg)
		writeOrder(t, cfg, wire.NewID(), wire.VerbReprovision)
		f.generation()
	default:
		f.writeOldSet(t, cfg)
	}
	return cfg, newJob(cfg)
}

const oldConf = "# by hand\nprovision = true\ngeneration = old\n"

// writeOldSet writes the files of a node that was set up by hand, and some of other programs.
func (f *fleet) writeOldSet(t *testing.T, cfg server.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := f.authority.Issue(ca.Request{Role: wire.RoleNode, Name: cfg.Identity, PublicKey: key.Public()})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"private.pem":           string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"certificate.pem":       cert.Chain,
		"ca.pem":                f.authority.RootsPEM(),
		"facts.json":            `{"mine":true}`,
		"sub/dir/also mine.txt": "mine",
	} {
		writeFile(t, filepath.Join(cfg.SSLDir, name), text)
	}
	writeFile(t, cfg.ConfFile, oldConf)
}

// A snapshot is what programs read: server.conf by its path, and every file in the directory that is not the agent's
// own.
func snapshot(t *testing.T, cfg server.Config) map[string]string {
	t.Helper()
	shows := map[string]string{}
	read := func(name, path string) {
		b, err := os.ReadFile(path)
		if err == nil {
			shows[name] = string(b)
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	read("CONF", cfg.ConfFile)
	entries, err := os.ReadDir(cfg.SSLDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "server.conf") ||
			strings.Contains(e.Name(), ".before-") {
			continue
		}
		root, err := filepath.EvalSymlinks(filepath.Join(cfg.SSLDir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			below, err := filepath.Rel(root, path)
			read(filepath.Join(e.Name(), below), path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return shows
}

// checkNew checks that a snapshot is one complete new set.
func (f *fleet) checkNew(t *testing.T, shows map[string]string, others bool) {
	t.Helper()
	if !strings.Contains(shows["CONF"], "generation = new") {
		t.Errorf("server.conf = %q", shows["CONF"])
	}
	want := []string{"CONF", "ca.pem", "certificate.pem", "policies/new.policy", "policies/rego/new.rego",
		"private.pem"}
	if others {
		want = append(want, "facts.json", "sub/dir/also mine.txt")
		if shows["facts.json"] != `{"mine":true}` {
			t.Errorf("facts.json = %q", shows["facts.json"])
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(shows))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if shows["ca.pem"] != f.authority.RootsPEM() {
		t.Error("ca.pem is not the authority's")
	}
	if !keyFits(t, shows) {
		t.Error("certificate is not for the key")
	}
}

func keyFits(t *testing.T, shows map[string]string) bool {
	t.Helper()
	k, _ := pem.Decode([]byte(shows["private.pem"]))
	c, _ := pem.Decode([]byte(shows["certificate.pem"]))
	if k == nil || c == nil {
		return false
	}
	key, err := x509.ParsePKCS8PrivateKey(k.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(c.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(crypto.Signer).Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(cert.PublicKey)
}

// generation makes sets that checkNew knows, large enough to be cut short.
func (f *fleet) generation() {
	f.set(func() {
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			return &wire.Reply{ID: r.ID, Installation: "test",
				Enrolled: f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) {
					e.Files = wire.Files{
						Configuration:  map[string]string{"generation": "new", "brokers": f.url()},
						ActionPolicies: map[string]string{"new": "policy default deny\n"},
						OPAPolicies: map[string]string{"new": "package new\n# " + strings.Repeat("x", 64<<10) +
							"\n"},
					}
				})}
		}
	})
}

func TestKilledAnywhereLeavesOneWholeSet(t *testing.T) {
	t.Parallel()
	layouts := map[string]layout{
		"first time":                {fresh: true},
		"again, configured by hand": {},
		"again, in one directory":   {flat: true},
		"again, by an order":        {again: true},
	}
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.generation()
			steps := f.countSteps(t, l)
			if len(steps) < 20 {
				t.Fatalf("only %d steps: %q", len(steps), steps)
			}
			eachStep(t, steps, func(t *testing.T, step string, occurrence int) { f.killAfter(t, l, step, occurrence) })
		})
	}
}

// countSteps returns the steps of an undisturbed agent.
func (f *fleet) countSteps(t *testing.T, l layout) []string {
	t.Helper()
	cfg, _ := l.prepare(t, f)
	var steps []string
	cfg.SetSteps(func(name string) { steps = append(steps, name) })
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	return steps
}

func (f *fleet) killAfter(t *testing.T, l layout, step string, occurrence int) {
	cfg, j := l.prepare(t, f)
	before := snapshot(t, cfg)
	f.set(func() { f.enrolls = nil })
	j.KillAfter, j.Occurrence = step, occurrence
	cmd, stderr := startChild(t, j)
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("child ended with %v, want it killed; it said:\n%s", err, stderr.String())
	}

	others := !l.fresh && !l.again
	shows := snapshot(t, cfg)
	if strings.Contains(shows["CONF"], "generation = new") {
		f.checkNew(t, shows, others)
	} else if diff := cmp.Diff(before, shows); diff != "" {
		t.Errorf("neither the old set nor the new (-old +found):\n%s", diff)
	}

	// The next agent ends with the new set in each case.
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	f.await("confirmation", func() bool { return !exists(filepath.Join(cfg.SSLDir, "..data", "applied.json")) })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.checkNew(t, snapshot(t, cfg), others)
	f.checkTidy(t, cfg)
	requests := f.requests()
	for _, r := range requests {
		if !bytes.Equal(r.CSR, requests[0].CSR) {
			t.Error("another key or certificate request after the restart")
		}
	}
}

// checkTidy checks that no leftovers remain and that modes are right.
func (f *fleet) checkTidy(t *testing.T, cfg server.Config) {
	t.Helper()
	entries, err := os.ReadDir(cfg.SSLDir)
	if err != nil {
		t.Fatal(err)
	}
	generations := 0
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, "..set-"):
			generations++
		case name == "..next", strings.HasSuffix(name, ".link"), strings.HasSuffix(name, ".new"):
			t.Errorf("left behind: %s", name)
		}
	}
	if generations != 1 {
		t.Errorf("%d generations, want the one in force", generations)
	}
	fi, err := os.Stat(filepath.Join(cfg.SSLDir, "private.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if fi.Mode() != 0o600 {
		t.Errorf("private.pem has mode %v, want 0600", fi.Mode())
	}
}

func TestFullDiskKeepsTheOldSet(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.generation()
	cfg, j := layout{}.prepare(t, f)
	before := snapshot(t, cfg)
	j.MaxFileBytes = 16 << 10 // less than one of the policies
	cmd, stderr := startChild(t, j)
	f.await("three attempts", func() bool { return len(f.requests()) >= 3 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if diff := cmp.Diff(before, snapshot(t, cfg)); diff != "" {
		t.Errorf("old set (-before +after):\n%s\nchild said:\n%s", diff, stderr.String())
	}
	if n := strings.Count(stderr.String(), "file too large"); n != 1 {
		t.Errorf("logged %d times, want once per change:\n%s", n, stderr.String())
	}
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.checkNew(t, snapshot(t, cfg), true)
}

// Each fsync of a directory fails once. The node shows the old set until the new one is complete, asks with one key,
// and confirms nothing before the switch is durable.
func TestAFailedSyncIsRetried(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.generation()
	run := func(t *testing.T, fail int) (syncs int) {
		cfg, _ := layout{}.prepare(t, f)
		before := snapshot(t, cfg)
		onDisk := false
		cfg.SetSync(func(dir string) error {
			if syncs++; syncs == fail {
				return errors.New("the disk does not answer")
			}
			onDisk = onDisk || dir == cfg.SSLDir
			return nil
		})
		cfg.SetSteps(func(step string) {
			switch step {
			case "switched":
				onDisk = false
			case "sent " + wire.SubjectEnroll:
				if diff := cmp.Diff(before, snapshot(t, cfg)); diff != "" {
					t.Errorf("old set (-before +after):\n%s", diff)
				}
			case "sent " + wire.SubjectApplied:
				if !onDisk {
					t.Error("what is not on disk is confirmed")
				}
			}
		})
		f.set(func() { f.enrolls = nil })
		a := f.run(cfg)
		a.await(server.EventConfirmed, 1)
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		f.checkNew(t, snapshot(t, cfg), true)
		attempt(t, f, cfg, server.EventConnected) // removes what this one could not
		f.checkTidy(t, cfg)
		for _, r := range f.requests() {
			if !bytes.Equal(r.CSR, f.requests()[0].CSR) {
				t.Error("another key or certificate request")
			}
		}
		return syncs
	}
	for n := run(t, 0); n > 0; n-- {
		t.Run(fmt.Sprint(n), func(t *testing.T) { run(t, n) })
	}
}
