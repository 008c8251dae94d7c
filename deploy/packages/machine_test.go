package packages_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/testproc"
)

// A machine is a directory with a Debian that systemd-nspawn boots. All machines of a test share one network, in which
// they are localhost.
type machine struct {
	dir, network string
	nspawn       *exec.Cmd
	init         string // process id of its systemd; "": not running
	console      bytes.Buffer
}

// network makes a network namespace with a loopback device.
func network(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("muster-%d-%s", os.Getpid(), filepath.Base(t.Name()))
	run(t, nil, "ip", "netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() }) // ends with the test at the latest
	run(t, nil, "ip", "-n", name, "link", "set", "lo", "up")
	return "/run/netns/" + name
}

// debian makes the root of a small Debian, which machines copy.
func debian(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "debian")
	run(t, nil, "mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd,systemd-sysv,dbus,openssl,openrc",
		"bookworm", dir)
	return dir
}

// newMachine copies a root, and the packages in dirs to /NAME-OF-DIR.
func newMachine(t *testing.T, debian, network, name string, dirs map[string]string) *machine {
	t.Helper()
	m := &machine{dir: filepath.Join(t.TempDir(), "root"), network: network}
	run(t, nil, "cp", "-a", "--reflink=auto", debian, m.dir)
	for to, from := range dirs {
		run(t, nil, "cp", "-r", from, filepath.Join(m.dir, to))
	}
	m.write(t, "/etc/hostname", name+"\n", 0o644)
	m.write(t, "/etc/hosts", "127.0.0.1 localhost prov1.example.net "+name+"\n", 0o644)
	return m
}

func (m *machine) write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	path = filepath.Join(m.dir, path)
	if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// boot starts systemd, and waits until all its jobs are done.
func (m *machine) boot(t *testing.T) {
	t.Helper()
	m.nspawn = exec.Command("systemd-nspawn", "--quiet", "--directory="+m.dir, "--boot", "--register=no", "--keep-unit",
		"--network-namespace-path="+m.network, "--console=pipe")
	m.nspawn.Stdout, m.nspawn.Stderr = &m.console, &m.console
	if err := testproc.Start(m.nspawn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if m.init != "" {
			m.stop(t)
		}
	})
	until(t, "systemd has started", func() error {
		var err error
		if m.init, err = firstProcess(m.nspawn.Process.Pid); err != nil {
			return err
		}
		out, err := m.try("systemctl", "is-system-running", "--wait")
		if strings.TrimSpace(out) == "degraded" { // the container lacks a device
			return nil
		}
		return err
	})
}

// stop shuts the machine down in order.
func (m *machine) stop(t *testing.T) {
	t.Helper()
	_, err := m.try("systemctl", "poweroff")
	if err != nil {
		t.Errorf("poweroff: %v", err)
		_ = m.nspawn.Process.Signal(syscall.SIGTERM)
	}
	if err := m.nspawn.Wait(); err != nil {
		t.Errorf("systemd-nspawn: %v\n%s", err, m.console.String())
	}
	m.init = ""
}

// firstProcess returns the host's id of the process with id 1 that a systemd-nspawn has started.
func firstProcess(nspawn int) (string, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", nspawn))
	if err != nil {
		return "", err
	}
	for child := range strings.FieldsSeq(string(children)) {
		status, err := os.ReadFile("/proc/" + child + "/status")
		if err == nil && regexp.MustCompile(`(?m)^NSpid:.*\t1$`).Match(status) {
			return child, nil
		}
	}
	return "", errors.New("there is no first process yet")
}

// try runs a command in the machine.
func (m *machine) try(command ...string) (string, error) {
	args := append([]string{"--target", m.init, "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd"},
		command...)
	cmd := exec.Command("nsenter", args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
	}
	return string(out), nil
}

// run runs a command line in the machine's shell.
func (m *machine) run(t *testing.T, line string) string {
	t.Helper()
	out, err := m.try("/bin/sh", "-ec", line)
	if err != nil {
		t.Fatal(err, m.journal())
	}
	return out
}

// journal returns the end of the log of muster's units.
func (m *machine) journal() string {
	out, _ := m.try("journalctl", "--no-pager", "-n", "40", "-u", "muster-*")
	return out
}

// offline runs a command line in the machine's root without its systemd, as makers of images do.
func (m *machine) offline(t *testing.T, line string) string {
	t.Helper()
	return run(t, nil, "systemd-nspawn", "--quiet", "--directory="+m.dir, "--register=no", "--keep-unit", "--pipe", "--as-pid2",
		"--network-namespace-path="+m.network, "/bin/sh", "-ec", line)
}

// wants waits until a command line succeeds and its output has the text.
func (m *machine) wants(t *testing.T, text, line string) {
	t.Helper()
	until(t, line+" says "+text, func() error {
		out, err := m.try("/bin/sh", "-ec", line)
		if err == nil && !strings.Contains(out, text) {
			err = fmt.Errorf("%s: %s\n%s", line, out, m.journal())
		}
		return err
	})
}

// until waits for a condition, up to two minutes.
func until(t *testing.T, what string, holds func() error) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); ; <-tick.C {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited two minutes until %s: %v", what, err)
		}
	}
}
