// Package choria_test provisions unmodified Choria servers by muster processes, with `make ci-install`.
package choria_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testproc"
)

// patience bounds each wait.
const patience = 90 * time.Second

// Choria servers under test.
const (
	newest = "0.30.2"
	oldest = "0.28.0"
)

// work is the directory of the programs under test.
var work string

func TestMain(m *testing.M) {
	var err error
	if work, err = os.MkdirTemp("", "muster-choria-"); err != nil {
		panic(err)
	}
	m.Run()
	_ = os.RemoveAll(work)
}

// builtMuster returns the path of muster. MUSTER names an existing program.
var builtMuster = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("MUSTER"); path != "" {
		return path, nil
	}
	return filepath.Join(work, "muster"), testproc.Build(work)
})

// unpacked has the path of each version of Choria.
var unpacked sync.Map

// choriaProgram returns the path of a Choria program. CHORIA names it, or a directory with packed programs.
func choriaProgram(t testing.TB, version string) string {
	t.Helper()
	path, err := filepath.Abs(os.Getenv("CHORIA"))
	if os.Getenv("CHORIA") == "" {
		path, err = filepath.Abs("../../../shared/peers")
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		return path
	}
	packed := filepath.Join(path, "choria-"+version+".xz")
	if _, err := os.Stat(packed); err != nil {
		t.Fatalf("no Choria server: set CHORIA to a choria program, or to a directory with choria-%s.xz: %v", version, err)
	}
	unpack, _ := unpacked.LoadOrStore(version, sync.OnceValues(func() (string, error) {
		program := filepath.Join(work, "choria-"+version)
		out, err := exec.Command("sh", "-c", `xz -dc "$0" > "$1" && chmod +x "$1"`, packed, program).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("unpack %s: %w: %s", packed, err, out)
		}
		return program, nil
	}))
	program, err := unpack.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline, again := time.After(patience), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// A process is a program that a test started. It is killed when the test ends.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// output returns what the process has printed so far.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// launch starts a program in dir.
func launch(t testing.TB, dir, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, p, p
	if err := testproc.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if out := p.output(); t.Failed() {
			t.Logf("%s printed:\n%s", name, out[max(0, len(out)-6000):])
		}
	})
	return p
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // fails if it has ended
	<-p.done
}

// exit waits for the end and returns the exit status.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s did not end within %v", p.name, patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// waitFor waits until the process has printed text.
func (p *process) waitFor(text string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%s prints %q", p.name, text), func() bool {
		select {
		case <-p.done:
			if !strings.Contains(p.output(), text) {
				p.t.Fatalf("%s ended before it printed %q", p.name, text)
			}
		default:
		}
		return strings.Contains(p.output(), text)
	})
}

// run runs a command in the directory of a fleet and returns its output.
func (f *fleet) run(name string, args ...string) string {
	f.Helper()
	cmd := exec.CommandContext(f.Context(), name, args...)
	cmd.Dir = f.dir
	cmd.Env = append(os.Environ(), "MUSTER_CONFIG=prov/provisioner.yaml")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		f.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// muster runs a verb of muster.
func (f *fleet) muster(args ...string) string {
	f.Helper()
	return f.run(f.program, args...)
}

// read decodes the JSON that a verb prints.
func (f *fleet) read(v any, args ...string) {
	f.Helper()
	if out := f.muster(append(args, "-o", "json")...); json.Unmarshal([]byte(out), v) != nil {
		f.Fatalf("muster %s: no JSON: %s", strings.Join(args, " "), out)
	}
}

// An event is what `muster events` shows.
type event struct {
	Type    string `json:"type"`
	Subject string `json:"subject"`
	Data    struct {
		Code   string `json:"code"`
		Cause  string `json:"cause"`
		Reason string `json:"reason"`
		Serial string `json:"serial"`
	} `json:"data"`
}

func (f *fleet) events(args ...string) []event {
	f.Helper()
	var list struct {
		Events []event `json:"events"`
	}
	f.read(&list, append([]string{"events"}, args...)...)
	return list.Events
}

// waitRefused waits for an event about a refused server or connection.
func (f *fleet) waitRefused(code, cause string, filter ...string) {
	f.Helper()
	eventually(f, fmt.Sprintf("refused with %s, %q", code, cause), func() bool {
		return slices.ContainsFunc(f.events(append(filter, "--code", code)...), func(e event) bool {
			return strings.Contains(e.Data.Cause, cause)
		})
	})
}

func (f *fleet) write(name, content string) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o600); err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) contents(name string) string {
	f.Helper()
	b, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		f.Fatal(err)
	}
	return string(b)
}

// edit replaces text that stands in a file once.
func (f *fleet) edit(name, old, replacement string) {
	f.Helper()
	text := f.contents(name)
	if strings.Count(text, old) != 1 {
		f.Fatalf("%s has %q %d times, want once", name, old, strings.Count(text, old))
	}
	f.write(name, strings.Replace(text, old, replacement, 1))
}
