package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/testproc"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// Environment of a provisioner in a process of its own, which kills itself.
const (
	envKilledDir    = "MUSTER_TEST_KILLED_DIR"    // directory of the fleet
	envKilledListen = "MUSTER_TEST_KILLED_LISTEN" // address of its broker
)

// deadly kills this process with SIGKILL, its broker with it, before or after the
// call that it was told.
type deadly struct {
	mu    sync.Mutex
	where string // guarded by mu: as "after PutAnswer", empty for nowhere
	calls int    // guarded by mu: until then
}

// arm says where to die: "before PutAnswer", or "after Put 2" for the second call.
func (d *deadly) arm(where string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	fields := strings.Fields(where)
	if len(fields) < 2 {
		return fmt.Errorf("to die %q, want before or after a call", where)
	}
	d.where, d.calls = fields[0]+" "+fields[1], 1
	if len(fields) > 2 {
		_, err := fmt.Sscan(fields[2], &d.calls)
		return err
	}
	return nil
}

func (d *deadly) reach(where string) {
	d.mu.Lock()
	defer d.mu.Unlock() // others do nothing more once it has come to it
	if where != d.where {
		return
	}
	if d.calls--; d.calls == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// deadlyCall makes a call that is before and after what it does.
func deadlyCall[T any](d *deadly, name string, do func() (T, error)) (T, error) {
	d.reach("before " + name)
	v, err := do()
	if err == nil {
		d.reach("after " + name)
	}
	return v, err
}

type deadlyStore struct {
	provisioner.Store
	d *deadly
}

func (s *deadlyStore) Put(ctx context.Context, r *provisioner.Record, after provisioner.Revision) (provisioner.Revision, error) {
	return deadlyCall(s.d, "Put", func() (provisioner.Revision, error) { return s.Store.Put(ctx, r, after) })
}

func (s *deadlyStore) PutAnswer(ctx context.Context, a *provisioner.Answer, after provisioner.Revision) error {
	_, err := deadlyCall(s.d, "PutAnswer", func() (int, error) { return 0, s.Store.PutAnswer(ctx, a, after) })
	return err
}

func (s *deadlyStore) DropWaiter(ctx context.Context, id wire.Identity, key string, upTo provisioner.Revision) error {
	_, err := deadlyCall(s.d, "DropWaiter", func() (int, error) { return 0, s.Store.DropWaiter(ctx, id, key, upTo) })
	return err
}

func (s *deadlyStore) PutAllowance(ctx context.Context, a *provisioner.Allowance, after provisioner.Revision) error {
	_, err := deadlyCall(s.d, "PutAllowance", func() (int, error) { return 0, s.Store.PutAllowance(ctx, a, after) })
	return err
}

func (s *deadlyStore) PutOperator(ctx context.Context, e *provisioner.OperatorEntry, after provisioner.Revision) (provisioner.Revision, error) {
	return deadlyCall(s.d, "PutOperator", func() (provisioner.Revision, error) { return s.Store.PutOperator(ctx, e, after) })
}

func (s *deadlyStore) NoteToken(info *provisioner.TokenInfo) {
	_, _ = deadlyCall(s.d, "NoteToken", func() (int, error) { s.Store.NoteToken(info); return 0, nil })
}

func (s *deadlyStore) AppendClaims(ctx context.Context, tid jwt.TokenID, e *provisioner.ClaimEntry, after provisioner.Revision) (provisioner.Revision, error) {
	return deadlyCall(s.d, "AppendClaims", func() (provisioner.Revision, error) { return s.Store.AppendClaims(ctx, tid, e, after) })
}

type deadlyJournal struct {
	provisioner.Journal
	d *deadly
}

func (j *deadlyJournal) AppendOperator(e *provisioner.OperatorEntry) error {
	_, err := deadlyCall(j.d, "AppendOperator", func() (int, error) { return 0, j.Journal.AppendOperator(e) })
	return err
}

func (j *deadlyJournal) AppendAllowance(a *provisioner.Allowance) error {
	_, err := deadlyCall(j.d, "AppendAllowance", func() (int, error) { return 0, j.Journal.AppendAllowance(a) })
	return err
}

// TestProvisionerThatIsKilled is the provisioner of the tests below. A line on its
// standard input says where it dies.
func TestProvisionerThatIsKilled(t *testing.T) { //nolint:paralleltest // it kills its process
	dir := os.Getenv(envKilledDir)
	if dir == "" {
		t.Skip("only as a child")
	}
	d := &deadly{}
	p, err := daemon.LoadWith(filepath.Join(dir, "provisioner.yaml"), daemon.Options{
		WrapStore:   func(s provisioner.Store) provisioner.Store { return &deadlyStore{s, d} },
		WrapJournal: func(j provisioner.Journal) provisioner.Journal { return &deadlyJournal{j, d} },
	}, func(c *daemon.Config) { c.Broker.Listen = os.Getenv(envKilledListen) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		defer stop()
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			if err := d.arm(lines.Text()); err != nil {
				fmt.Fprintln(os.Stdout, err)
			}
			fmt.Fprintln(os.Stdout, "armed")
		}
	}()
	if err := p.Run(ctx, func() { fmt.Fprintln(os.Stdout, "ready") }); err != nil {
		t.Fatal(err)
	}
}

// A victim is a fleet's provisioner in a process of its own.
type victim struct {
	t   *testing.T
	f   *testbed.Fleet
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

// victimOf takes the provisioner of a fleet out of this process, into one that can
// be killed.
func victimOf(t *testing.T, f *testbed.Fleet) *victim {
	t.Helper()
	f.Stop()
	v := &victim{t: t, f: f}
	v.start()
	return v
}

func (v *victim) start() {
	v.t.Helper()
	v.cmd = exec.CommandContext(v.t.Context(), os.Args[0], "-test.run=^TestProvisionerThatIsKilled$")
	v.cmd.Env = append(os.Environ(), envKilledDir+"="+v.f.Dir, envKilledListen+"="+strings.TrimPrefix(v.f.URL(), "nats://"))
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		v.t.Fatal(err)
	}
	v.cmd.Stdin, v.cmd.Stderr, v.in, v.out = theirs, os.Stderr, ours, bufio.NewScanner(out)
	if err := testproc.Start(v.cmd); err != nil {
		v.t.Fatal(err)
	}
	_ = theirs.Close()
	v.says("ready")
}

// says waits until it says so.
func (v *victim) says(want string) {
	v.t.Helper()
	if !v.out.Scan() || v.out.Text() != want {
		v.t.Fatalf("the provisioner says %q, want %q: %v", v.out.Text(), want, v.out.Err())
	}
}

// dies has it die where it is told, in what do asks of it, and starts it again.
func (v *victim) dies(where string, do func() error) {
	v.t.Helper()
	if _, err := fmt.Fprintln(v.in, where); err != nil {
		v.t.Fatal(err)
	}
	v.says("armed")
	if err := do(); err == nil && !strings.Contains(where, " Put ") {
		v.t.Fatalf("answered, though it was to die %s", where)
	}
	v.ends()
	v.start()
}

// ends waits until it was killed.
func (v *victim) ends() {
	v.t.Helper()
	for v.out.Scan() { // to its end
	}
	var exit *exec.ExitError
	if err := v.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		v.t.Fatalf("the provisioner was not killed: %v", err)
	}
	_ = v.in.Close()
}

// back takes the provisioner into this process again.
func (v *victim) back() {
	v.t.Helper()
	_ = v.in.Close()
	for v.out.Scan() {
	}
	if err := v.cmd.Wait(); err != nil {
		v.t.Errorf("the provisioner: %v", err)
	}
	v.f.Start()
}
