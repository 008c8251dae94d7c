// Package windows_test runs the agent for Windows under wine.
package windows_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/testbed"
	"muster/internal/testproc"
	"muster/provisioner"
)

const (
	wine64 = "/usr/lib/wine/wine64"
	node   = "web1.example.net"
)

// agentPackages have tests that need neither Unix nor what wine 8 lacks, UDP with Go for one.
var agentPackages = []string{"./server/files", "./internal/conffile", "./internal/inputfile", "./internal/limit",
	"./internal/nearest", "./internal/seal", "./internal/span"}

func TestUnderWine(t *testing.T) {
	t.Parallel()
	testproc.NeedsInstall(t)
	testproc.Needs(t, wine64, "x86_64-w64-mingw32-ld")
	w := newWine(t)
	w.run("go", append([]string{"test", "-short", "-overlay", w.overlay, "-exec", wine64}, agentPackages...)...)
	w.run("go", "build", "-trimpath", "-overlay", w.overlay, "-o", w.dir, "./cmd/muster-server")
	w.provision()
}

// A wine is a Windows of its own.
type wine struct {
	*testing.T
	dir, drive string
	overlay    string
	env        []string
}

// newWine adds what wine 8 lacks and Go needs: bcryptprimitives.dll, and the deletion of files as older versions of
// Windows do it. To protected access lists wine adds what all users may do in the directory: here, nothing.
func newWine(t *testing.T) *wine {
	t.Helper()
	syscall.Umask(0o077)
	dir := t.TempDir()
	prefix := filepath.Join(dir, "prefix")
	w := &wine{
		T:       t,
		dir:     dir,
		drive:   filepath.Join(prefix, "drive_c"),
		overlay: filepath.Join(dir, "overlay.json"),
		env: append(os.Environ(), "WINEPREFIX="+prefix, "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml=",
			"GOOS=windows", "CGO_ENABLED=0"),
	}
	t.Cleanup(func() { w.run("/usr/lib/wine/wineserver", "-k") })
	w.run(wine64, "wineboot", "-i")
	def := w.write("random.def", "EXPORTS\nProcessPrng = advapi32.SystemFunction036\n")
	w.run("x86_64-w64-mingw32-ld", "-shared", "-e", "0", "-o", w.drive+"/windows/system32/bcryptprimitives.dll", def)

	source := w.run("go", "list", "-f", "{{.Dir}}/at_windows.go", "internal/syscall/windows")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	older := strings.Replace(string(text), "TestDeleteatFallback bool", "TestDeleteatFallback = true", 1)
	replace := map[string]map[string]string{"Replace": {source: w.write("at_windows.go", older)}}
	overlay, err := json.Marshal(replace)
	if err != nil {
		t.Fatal(err)
	}
	w.write("overlay.json", string(overlay))
	return w
}

func (w *wine) write(name, text string) (path string) {
	w.Helper()
	path = filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	return path
}

// run runs a command in the repository, and returns what it prints.
func (w *wine) run(program string, args ...string) string {
	w.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = "../..", w.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Errorf("%s %v: %v\n%s", program, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// provision enrolls a node at a real provisioner, has it renew, since it lost its certificate, and starts it again.
func (w *wine) provision() {
	f := testbed.New(w, testbed.Options{})
	data := filepath.Join(w.drive, "ProgramData", "muster")
	if err := os.Mkdir(data, 0o700); err != nil {
		w.Fatal(err)
	}
	w.write("prefix/drive_c/ProgramData/muster/provisioning.jwt", f.Token(nil))
	stop := w.start(f)
	first := f.Record(node).Current.Serial
	if err := os.Remove(filepath.Join(data, "ssl", "..data", "certificate.pem")); err != nil {
		w.Fatal(err)
	}
	f.Eventually("the agent has renewed", func() bool {
		r := f.Record(node)
		return r.Current.Serial != first && r.Next == nil
	})
	stop()
	w.start(f)
	f.Check()
}

// start starts the agent, and returns when it is connected to the fleet.
func (w *wine) start(f *testbed.Fleet) (stop func()) {
	w.Helper()
	log, err := os.CreateTemp(w.dir, "log")
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(wine64, filepath.Join(w.dir, "muster-server.exe"), "run", "--identity", node)
	cmd.Env, cmd.Stderr = w.env, log
	if err := testproc.Start(cmd); err != nil {
		w.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	w.Cleanup(stop)
	read := func() string {
		b, _ := os.ReadFile(log.Name())
		return string(b)
	}
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("the agent's log:\n%s", read())
		}
	})
	f.Eventually("the agent is connected to the fleet", func() bool {
		r := f.Record(node)
		return r != nil && r.State == provisioner.StateProvisioned && strings.Contains(read(), "connected to the fleet")
	})
	return stop
}
