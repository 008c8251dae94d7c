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

// childEnv holds the job of a child process: this test binary, run as an agent
// that kills itself.
const childEnv = "MUSTER_TEST_AGENT"

// A child's job.
type job struct {
	TokenFile, ConfFile, SSLDir, Identity string
	KillAfter                             string // the step after which to die; empty: never
	Occurrence                            int    // which one of that name, from 1
	WithoutExchange                       bool   // as on other systems
	MaxFileBytes                          uint64
	Later                                 time.Duration // how far ahead its clock is
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
		BackoffMin: 5 * time.Millisecond, BackoffMax: 50 * time.Millisecond, RequestTimeout: 5 * time.Second, WatchInterval: 20 * time.Millisecond}
	if j.WithoutExchange {
		cfg.WithoutExchange()
	}
	if j.Later != 0 {
		cfg.Now = func() time.Time { return time.Now().Add(j.Later) }
	}
	return cfg
}

// runChild runs an agent until it has killed itself, or until it is connected
// to the fleet or whatever else the job says.
func runChild(text string) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		panic(err)
	}
	if j.Until == "" {
		j.Until = server.EventConnected
	}
	if j.MaxFileBytes > 0 {
		signal.Ignore(unix.SIGXFSZ) // writes then fail with EFBIG
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

// startChildBy is startChild, by a program that starts another.
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

// A layout is how a node's files lie before it is provisioned.
type layout struct {
	fresh           bool // nothing there yet
	flat            bool // everything in one directory
	linked          bool // server.conf is a link already
	withoutExchange bool
}

func (l layout) prepare(t *testing.T, f *fleet) (server.Config, job) {
	t.Helper()
	cfg := f.node("web1.example.net")
	if l.flat {
		cfg.ConfFile = filepath.Join(cfg.SSLDir, "server.conf")
	}
	if !l.fresh {
		f.writeOldSet(t, cfg, l)
	}
	j := job{TokenFile: cfg.TokenFile, ConfFile: cfg.ConfFile, SSLDir: cfg.SSLDir, Identity: cfg.Identity, WithoutExchange: l.withoutExchange}
	if l.withoutExchange {
		cfg.WithoutExchange()
	}
	return cfg, j
}

const oldConf = "# by hand\nprovision = true\ngeneration = old\n"

// writeOldSet writes the files of a node that was provisioned before and is to
// be provisioned again, and a few that are not muster's.
func (f *fleet) writeOldSet(t *testing.T, cfg server.Config, l layout) {
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
		"policies/old.policy":   "old",
		"policies/rego/x.rego":  "package old",
		"policies/rego/README":  "mine",
		"facts.json":            `{"mine":true}`,
		"sub/dir/also mine.txt": "mine",
	} {
		writeFile(t, filepath.Join(cfg.SSLDir, name), text)
	}
	if l.linked {
		writeFile(t, filepath.Join(cfg.SSLDir, "server.conf"), oldConf)
		if err := os.Symlink("ssl/server.conf", cfg.ConfFile); err != nil {
			t.Fatal(err)
		}
		return
	}
	writeFile(t, cfg.ConfFile, oldConf)
}

// A snapshot is what a node's paths show: server.conf through its own path,
// and every file in the directory, but the one that goes with the first connection.
// Missing files have no entry.
func snapshot(t *testing.T, cfg server.Config) map[string]string {
	t.Helper()
	shows := map[string]string{}
	b, err := os.ReadFile(cfg.ConfFile)
	if err == nil {
		shows["CONF"] = string(b)
	} else if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	root := cfg.SSLDir
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if name == "untried" {
			return nil
		}
		b, err := os.ReadFile(path)
		shows[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return shows
}

// Files that are not part of what a reader relies on.
func withoutTraces(shows map[string]string) map[string]string {
	shows = maps.Clone(shows)
	for _, name := range []string{"staged", "request.csr", "applied.json", "confirmed.json"} {
		delete(shows, name)
	}
	return shows
}

// checkNew checks that a snapshot is one whole new set.
func (f *fleet) checkNew(t *testing.T, shows map[string]string, foreign bool) {
	t.Helper()
	if !strings.Contains(shows["CONF"], "generation = new") || shows["CONF"] != shows["server.conf"] {
		t.Errorf("server.conf = %q, in the directory %q", shows["CONF"], shows["server.conf"])
	}
	want := []string{"CONF", "ca.pem", "certificate.pem", "policies/new.policy", "policies/rego/new.rego", "private.pem", "server.conf"}
	if foreign {
		want = append(want, "facts.json", "policies/rego/README", "sub/dir/also mine.txt")
		if shows["facts.json"] != `{"mine":true}` {
			t.Errorf("facts.json = %q", shows["facts.json"])
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(withoutTraces(shows)))); diff != "" {
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

// generation has the fleet issue sets that checkNew knows, large enough to be
// cut short where that is asked for.
func (f *fleet) generation() {
	f.set(func() {
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) {
				e.Files = wire.Files{
					Configuration:  map[string]string{"generation": "new", "brokers": f.url()},
					ActionPolicies: map[string]string{"new": "policy default deny\n"},
					OPAPolicies:    map[string]string{"new": "package new\n# " + strings.Repeat("x", 64<<10) + "\n"},
				}
			})}
		}
	})
}

func TestKilledAnywhereLeavesOneWholeSet(t *testing.T) {
	t.Parallel()
	layouts := map[string]layout{
		"first time":                 {fresh: true},
		"again, configured by hand":  {},
		"again, in one directory":    {flat: true},
		"again, linked":              {linked: true},
		"again, without an exchange": {withoutExchange: true},
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
			for i, step := range steps {
				occurrence := 1
				for _, earlier := range steps[:i] {
					if earlier == step {
						occurrence++
					}
				}
				if step == "clock saved" && occurrence > 1 {
					continue // happens only if a second has passed
				}
				t.Run(fmt.Sprintf("%02d after %s", i+1, step), func(t *testing.T) { f.killAfter(t, l, step, occurrence) })
			}
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

	shows := snapshot(t, cfg)
	switch {
	case l.withoutExchange && step == "moved away":
		if len(shows) > 0 {
			t.Errorf("between the renames there is %q", slices.Sorted(maps.Keys(shows)))
		}
	case strings.Contains(shows["CONF"], "generation = new"):
		f.checkNew(t, shows, !l.fresh)
	default:
		old := withoutTraces(shows)
		if _, had := before["server.conf"]; !had {
			delete(old, "server.conf") // the copy that the link shows
		}
		if diff := cmp.Diff(before, old); diff != "" {
			t.Errorf("neither the old set nor the new (-old +found):\n%s", diff)
		}
	}

	// Whatever it was, the next agent ends with the new set.
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	f.await("confirmation", func() bool { _, err := os.Stat(filepath.Join(cfg.SSLDir, "applied.json")); return err != nil })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.checkNew(t, snapshot(t, cfg), !l.fresh)
	f.checkTidy(t, cfg)
	requests := f.requests()
	for _, r := range requests {
		if !bytes.Equal(r.CSR, requests[0].CSR) {
			t.Error("another key or certificate request after the restart")
		}
	}
}

// checkTidy checks that nothing is left of the work, and that modes are right.
func (f *fleet) checkTidy(t *testing.T, cfg server.Config) {
	t.Helper()
	parent, base := filepath.Split(cfg.SSLDir)
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch e.Name() {
		case base, "." + base + ".lock", "." + base + ".clock", "server.conf":
		default:
			t.Errorf("left behind: %s", e.Name())
		}
	}
	for _, name := range []string{"staged", "request.csr", "applied.json"} {
		if _, err := os.Lstat(filepath.Join(cfg.SSLDir, name)); err == nil {
			t.Errorf("left behind in the set: %s", name)
		}
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
	shows := withoutTraces(snapshot(t, cfg))
	if diff := cmp.Diff(before, shows); diff != "" {
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

func TestAnyWriteThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.generation()
	order := []string{"answered", "certificate.pem", "ca.pem", "server.conf", "policies/new.policy", "policies/rego/new.rego", "untried", "applied.json"}
	for i, name := range order[1:] {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, _ := layout{}.prepare(t, f)
			before := snapshot(t, cfg)
			previous := "wrote " + order[i]
			if i == 0 {
				previous = "csr written"
			}
			failed := false
			next := filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.next")
			cfg.SetSteps(func(step string) {
				// Something is in the way of the file, once.
				if step == previous && !failed {
					failed = true
					way := filepath.Join(next, filepath.Dir(name), "."+filepath.Base(name)+".new", "in the way")
					if i == 0 { // the stage is tidied after this step: block the name above it
						way = filepath.Join(next, "certificate.pem", "x")
					}
					if err := os.MkdirAll(way, 0o755); err != nil {
						t.Error(err)
					}
				}
				if step == "sent "+wire.SubjectEnroll {
					if diff := cmp.Diff(before, withoutTraces(snapshot(t, cfg))); diff != "" {
						t.Errorf("old set (-before +after):\n%s", diff)
					}
				}
			})
			a := f.run(cfg)
			if i > 0 {
				a.await(server.EventFailed, 1)
			}
			a.await(server.EventConfirmed, 1)
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			f.checkNew(t, snapshot(t, cfg), true)
			f.checkTidy(t, cfg)
		})
	}
}
